#pragma once

#include <span>
#include <vector>

#include "pipeline/model_state.h"
#include "tessera/report.h"

namespace tessera::pipeline {

/// Noise to images; as Model::generate.
GenerateResult generate(ModelState& state, const GenerateRequest& request,
                        const RunControl& control);
std::vector<GenerateResult> generate(ModelState& state, std::span<const GenerateRequest> requests,
                                     const RunControl& control);
/// As Model::check.
void check(ModelState& state, const GenerateRequest& request, const std::stop_token& stop);

}  // namespace tessera::pipeline

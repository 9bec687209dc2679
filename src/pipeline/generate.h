#pragma once

#include <span>
#include <vector>

#include "runtime/model_state.h"
#include "tessera/report.h"

namespace tessera::pipeline {

/// Noise to images; as Model::generate.
GenerateResult generate(runtime::ModelState& state, const GenerateRequest& request,
                        const RunControl& control);
std::vector<GenerateResult> generate(runtime::ModelState& state,
                                     std::span<const GenerateRequest> requests,
                                     const RunControl& control);
/// As Model::check.
void check(runtime::ModelState& state, const GenerateRequest& request, const std::stop_token& stop);

}  // namespace tessera::pipeline

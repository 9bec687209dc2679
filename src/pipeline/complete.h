#pragma once

#include "completion/recorder.h"
#include "runtime/model_state.h"
#include "tessera/complete.h"

namespace tessera::pipeline {

/// Answers to prompts; as Model::complete.
CompleteResult complete(runtime::ModelState& state, const CompleteRequest& request,
                        const CompleteControl& control, const completion::PassWatch& watch = {});

/// As Model::check.
void check(runtime::ModelState& state, const CompleteRequest& request, const std::stop_token& stop);

}  // namespace tessera::pipeline

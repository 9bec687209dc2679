#pragma once

#include <map>
#include <string>

#include "runtime/model_state.h"

namespace tessera::pipeline {

/// Runs an MoE layer over the ranks of the model's plan, each with a run of the tokens: `x`
/// [tokens, hidden] -> `out` f32 of the same shape, and by expert, i32 [experts], the routed
/// tokens, `counts`, and those within the capacity, `kept_counts`. Throws Error(usage) for invalid
/// tensors and forms, Error(plan) for plan entries without meaning here.
std::map<std::string, tensor::Tensor> forward_moe_layer(
    const runtime::ModelState& state, const std::map<std::string, tensor::Tensor>& inputs,
    const ForwardRequest& request, const RunControl& control);

}  // namespace tessera::pipeline

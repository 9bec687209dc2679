#pragma once

#include <map>
#include <string>

#include "runtime/model_state.h"

namespace tessera::pipeline {

/// One MoE layer over the ranks of the model's plan, each with a run of the tokens: `x` [tokens,
/// hidden] -> `out` f32 of the same shape, and by expert, i32 [experts], the tokens that the router
/// sends there, `counts`, and those that its capacity keeps, `kept_counts`. Throws Error(usage) for
/// tensors and a form that do not fit, Error(plan) for entries of a plan that mean nothing here.
std::map<std::string, tensor::Tensor> forward_moe_layer(
    const runtime::ModelState& state, const std::map<std::string, tensor::Tensor>& inputs,
    const ForwardRequest& request, const RunControl& control);

}  // namespace tessera::pipeline

#pragma once

#include <vector>

#include "ops/matmul.h"
#include "ops/routing.h"

namespace tessera::ops {

/// One expert: gate and up packed in pairs [inner, hidden], down [hidden, inner]; both null where
/// another rank holds it.
struct Expert {
  Weight gate_up, down;
};

/// sum over slots, in slot order, in f32: weight * round(Expert(x)), rounding to the dtype of x;
/// then + shared [tokens, hidden] if defined; the result in the dtype of x. Experts without tokens
/// are not read. Work is grouped by expert: gather -> SwiGLU -> down -> weighted combine.
Tensor experts(const Tensor& x, const Routing& routing, const std::vector<Expert>& bank,
               const Tensor& shared = {});

/// The rows before combination: [tokens * k, hidden] in the dtype of x, row t * k + j is the expert
/// in slot j of token t (rows of id -1 are zero). For strategies that move or keep rows.
Tensor expert_rows(const Tensor& x, const Routing& routing, const std::vector<Expert>& bank);
/// The combination step of experts().
Tensor combine_rows(const Tensor& rows, const Tensor& weights, const Tensor& shared = {});

}  // namespace tessera::ops

#pragma once

#include <vector>

#include "ops/matmul.h"

namespace tessera::ops {

/// Which experts each token goes to: ids i32 [tokens, k] in falling order of score (ties: lowest
/// index; -1: no expert), weights f32 [tokens, k].
struct Routing {
  Tensor ids, weights;
};

/// How router logits become a routing.
struct RoutingOptions {
  enum class Score : uint8_t { softmax, sigmoid } score = Score::softmax;
  int top_k = 1;
  bool renormalise = false;  ///< weights divided by their sum over the k chosen
  float scale = 1;           ///< applied last
  Tensor bias{};  ///< f32 [experts], added for ranking only (sigmoid routers); may be undefined
  int groups = 1, top_groups = 1;  ///< keep the best groups (sum of their two best ranked values)
};

/// logits f32 [tokens, experts] -> Routing. On meta: shapes only.
Routing route(const Tensor& logits, const RoutingOptions& options);

/// One expert: gate and up packed in pairs [inner, hidden], down [hidden, inner].
struct ExpertWeights {
  Weight gate_up, down;
};

/// sum over slots, in slot order, in f32: weight * round(Expert(x)), rounding to the dtype of x;
/// then + shared [tokens, hidden] if defined; the result in the dtype of x. Experts without tokens
/// are not read. Work is grouped by expert: gather -> SwiGLU -> down -> weighted combine.
Tensor experts(const Tensor& x, const Routing& routing, const std::vector<ExpertWeights>& bank,
               const Tensor& shared = {});

/// The rows before combination: [tokens * k, hidden] in the dtype of x, row t * k + j is the expert
/// in slot j of token t (rows of id -1 are zero). For strategies that move or keep rows.
Tensor expert_rows(const Tensor& x, const Routing& routing, const std::vector<ExpertWeights>& bank);
/// The combination step of experts().
Tensor combine_rows(const Tensor& rows, const Tensor& weights, const Tensor& shared = {});

}  // namespace tessera::ops

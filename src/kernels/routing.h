#pragma once

#include <cstdint>

namespace tessera::kernels {

/// Scores of a token: softmax(logits), or a sigmoid of each, computed in f64.
struct RouterScoresArgs {
  const float* logits = nullptr;  ///< [experts]
  int64_t experts = 0;
  bool sigmoid = false;
  double* exact = nullptr;  ///< [experts]
  float* score = nullptr;   ///< [experts], rounded
};

/// ids[0 .. k) = indices of the k largest rank[i] + closed[i], decreasing; ties: the lowest index
/// first; -inf and NaN are never taken; -1 if none is left.
struct TopKArgs {
  const float* rank = nullptr;    ///< [n]
  const float* closed = nullptr;  ///< [n], 0 or -inf; null: all open
  int64_t n = 0;
  int k = 0;
  int32_t* ids = nullptr;
};

/// Routes all tokens: scores, ranks (logits; sigmoid: scores + bias), the best groups, the k best
/// experts, their weights.
struct RouteArgs {
  const float* logits = nullptr;  ///< [tokens, experts], dense
  int64_t tokens = 0, experts = 0;
  bool sigmoid = false;         ///< scores: softmax, or a sigmoid of each
  const float* bias = nullptr;  ///< [experts] or null; added for ranking only, with sigmoid only
  int groups = 1, top_groups = 1;
  int top_k = 1;
  bool renormalise = false;
  float scale = 1;
  const float* expert_scale = nullptr;  ///< [experts] or null; multiplies a weight last
  int32_t* ids = nullptr;               ///< [tokens, top_k]; -1: no expert
  float* weights = nullptr;             ///< [tokens, top_k]
  float* scores = nullptr;              ///< [tokens, experts]; null: not needed
};

/// Factor of an expert's weight.
constexpr float expert_scale(const RouteArgs& args, int32_t expert) {
  return args.expert_scale ? args.expert_scale[expert] : 1.0f;
}

namespace reference {
/// Token by token (route_token.h) over the next two functions.
void route(const RouteArgs& args);
void router_scores(const RouterScoresArgs& args);
void top_k(const TopKArgs& args);
}  // namespace reference
namespace avx512 {
/// Token by token over the next two functions.
void route(const RouteArgs& args);
/// Exponentials of eight experts at a time, within a few units in the last place of f64.
void router_scores(const RouterScoresArgs& args);
/// Keeps all ranks in registers, up to 256; searches k times.
void top_k(const TopKArgs& args);
}  // namespace avx512
namespace cuda {
/// A warp handles a token; scores in f64.
void route(const RouteArgs& args);
}  // namespace cuda

}  // namespace tessera::kernels

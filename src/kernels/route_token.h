#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/routing.h"

namespace tessera::kernels {

/// What route_token() computes on the way, by expert.
struct TokenScores {
  explicit TokenScores(int64_t experts)
      : exact(static_cast<size_t>(experts)), score(exact.size()), rank(exact.size()) {}
  std::vector<double> exact;  ///< softmax or sigmoid
  std::vector<float> score;   ///< the same, rounded
  std::vector<float> rank;    ///< of routers that do not rank by logits alone
};

/// The steps of route() that an instruction set has of its own.
struct RoutingSteps {
  void (*router_scores)(const RouterScoresArgs&) = nullptr;
  void (*top_k)(const TopKArgs&) = nullptr;
};

/// One token of route(): its ids and weights.
void route_token(const RouteArgs& args, int64_t token, const RoutingSteps& steps,
                 TokenScores& scores);
/// All tokens of route(), token by token.
void route_tokens(const RouteArgs& args, const RoutingSteps& steps);

/// rank = what experts are ranked by: logits; sigmoid routers: scores + bias.
void router_ranks(const RouteArgs& args, const float* logits, const float* score,
                  std::span<float> rank);
/// Ranks outside the best `top_groups` of `groups` become -inf. A group is worth the sum of its up
/// to two best members; one without members (all -inf) stays closed. Ties: the lowest index.
void limit_groups(std::span<float> rank, int groups, int top_groups, const RoutingSteps& steps);

}  // namespace tessera::kernels

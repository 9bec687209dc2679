#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/routing.h"

namespace tessera::kernels {

/// Intermediate results of route_token(), by expert.
struct TokenScores {
  explicit TokenScores(int64_t experts)
      : exact(static_cast<size_t>(experts)), score(exact.size()), choice(exact.size()) {}
  std::vector<double> exact;  ///< softmax or sigmoid
  std::vector<float> score;   ///< the same, rounded
  std::vector<float> choice;  ///< unused for routers that choose by logits
};

/// Steps of route() specific to an instruction set.
struct RoutingSteps {
  void (*router_scores)(const RouterScoresArgs&) = nullptr;
  void (*top_k)(const TopKArgs&) = nullptr;
};

/// Computes route() for a token: ids and weights.
void route_token(const RouteArgs& args, int64_t token, const RoutingSteps& steps,
                 TokenScores& scores);
/// Computes route() token by token.
void route_tokens(const RouteArgs& args, const RoutingSteps& steps);

/// choice = values by which experts are chosen: logits; for sigmoid routers scores + bias.
void choice_scores(const RouteArgs& args, const float* logits, const float* score,
                   std::span<float> choice);
/// Sets values outside the best `top_groups` of `groups` to -inf. A group's value is the sum of its
/// two best members; a group without members (all -inf) stays closed. Ties: the lowest index.
void limit_groups(std::span<float> choice, int groups, int top_groups, const RoutingSteps& steps);

}  // namespace tessera::kernels

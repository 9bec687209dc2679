#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nn/moe/selection_rule.h"
#include "nn/moe/sequence_peers.h"
#include "ops/routing.h"

namespace tessera::nn {

using tensor::Tensor;

/// The tokens of one call, by the coreset that they share: group_of[t] counts from 0, -1 stands for
/// the vanilla router. importance f32 [tokens]: for mc only.
struct SelectionScope {
  std::span<const int32_t> group_of;
  Tensor importance{};
  /// If tokens are split over ranks: the others, and how many groups all of them have.
  SequencePeers* peers = nullptr;
  int groups = 0;
};

/// logits f32 [tokens, experts] -> routing with max(top_k, taken) slots, unused ones -1 with weight
/// 0. `cores`, if given, receives each group's coreset as flags by expert (all ones without a
/// coreset rule). Votes are summed in fixed point, so that their order cannot change a coreset;
/// ties go to the lowest index. A full coreset gives the vanilla routing bit by bit. On meta:
/// shapes only.
ops::Routing select_experts(const Tensor& logits, const ops::RoutingOptions& router,
                            const SelectionRule& rule, const SelectionScope& scope,
                            std::vector<std::vector<uint8_t>>* cores = nullptr);

/// The routing of tokens that may use no more than the coreset of their group (flags by expert), in
/// the rule's way of weighing and of limiting groups; how the coresets came about is the caller's.
ops::Routing route_inside(const Tensor& logits, const ops::RoutingOptions& router,
                          const SelectionRule& rule, const SelectionScope& scope,
                          const std::vector<std::vector<uint8_t>>& cores);

}  // namespace tessera::nn

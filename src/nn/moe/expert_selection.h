#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nn/moe/selection_rule.h"
#include "nn/moe/sequence_peers.h"
#include "ops/routing.h"

namespace tessera::nn {

using tensor::Tensor;

/// The tokens of a call, by common coreset: group_of[t] counts from 0, -1 stands for the vanilla
/// router. importance f32 [tokens]: for mc only.
struct SelectionScope {
  std::span<const int32_t> group_of;
  Tensor importance{};
  /// For tokens split over ranks: the other ranks, and the total number of groups.
  SequencePeers* peers = nullptr;
  int groups = 0;
};

/// logits f32 [tokens, experts] -> routing with max(top_k, taken) slots, unused ones -1 with
/// weight 0. `cores`, if given, receives each group's coreset as flags by expert (all 1 without a
/// coreset rule). Votes are summed in fixed point, so their order cannot change a coreset; ties
/// go to the lowest index. A full coreset gives the vanilla routing bit by bit. On meta: shapes
/// only.
ops::Routing select_experts(const Tensor& logits, const ops::RoutingOptions& router,
                            const SelectionRule& rule, const SelectionScope& scope,
                            std::vector<std::vector<uint8_t>>* cores = nullptr);

/// The routing of tokens within the coreset of their group (flags by expert), with the rule's
/// weights and limits of groups; the caller chooses the coresets.
ops::Routing route_inside(const Tensor& logits, const ops::RoutingOptions& router,
                          const SelectionRule& rule, const SelectionScope& scope,
                          const std::vector<std::vector<uint8_t>>& cores);

}  // namespace tessera::nn

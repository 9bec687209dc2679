#pragma once

#include <span>

#include "kernels/selection.h"
#include "ops/routing.h"

namespace tessera::ops {

using kernels::InsideRule;
using kernels::kVoteUnit;
using kernels::VoteOf;

/// Steps of a choice between the scores of a router and its routing, where the scores are: on a
/// device nothing waits for the host. On meta: shapes only.

/// Tokens by what they share: of[t] counts from 0, below 0 stands for nothing.
struct TokenGroups {
  std::span<const int32_t> of;
  int64_t count = 0;
};

/// logits f32 [tokens, experts], ids i32 [tokens, k] that were chosen by them -> i64 [groups,
/// experts]: the sum of what tokens give to experts, or the maximum, in units of
/// kVoteUnit.
Tensor expert_votes(const Tensor& logits, const RoutingOptions& router, const Tensor& ids,
                    const TokenGroups& groups, VoteOf of, bool maximum);

/// votes i64 [groups, experts] -> u8 [groups, experts]: 1 for the `count` most voted experts
/// (equals: the lower index) and those of at least `bar` votes.
Tensor coresets(const Tensor& votes, int64_t count, int64_t bar);

/// The choice of each token inside the coreset of its group, with `slots` slots; `vanilla` and its
/// f32 `scores` as route() gives them, cores u8 [groups, experts] or undefined: all experts.
struct InsideChoice {
  Routing vanilla;
  Tensor scores, cores;
  InsideRule rule;
  int64_t slots = 0;
};
Routing choose_inside(const Tensor& logits, const RoutingOptions& router, const TokenGroups& groups,
                      const InsideChoice& choice);

/// x [tokens, channels] of floats -> f32 [tokens]: sums of magnitudes, channel by channel.
Tensor magnitudes(const Tensor& x);
/// importance f32 [tokens] -> i8 [tokens]: 1 for the share `high` of largest of each group, else -1
/// for the share `low` of smallest, else 0.
Tensor token_fates(const Tensor& importance, const TokenGroups& groups, double low, double high);

/// Drops the tail of less than `beta` of a token's weight, in place; fates [tokens] or undefined.
/// Renormalised, what is left weighs `full`.
struct TailRule {
  double beta = 0;
  bool renormalise = false;
  float full = 1;
};
void drop_tail(Routing& routing, const TokenGroups& groups, const Tensor& fates,
               const TailRule& rule);

}  // namespace tessera::ops

#pragma once

#include <span>

#include "kernels/selection.h"
#include "ops/routing.h"

namespace tessera::ops {

using kernels::InsideRule;
using kernels::kVoteUnit;
using kernels::VoteOf;

/// Steps of an expert selection between router scores and routing, on the device of the scores,
/// without waiting for the host. On meta: shapes only.

/// Groups of tokens: of[t] is the group of token t from 0; negative: none.
struct TokenGroups {
  std::span<const int32_t> of;
  int64_t count = 0;
};

/// logits f32 [tokens, experts], chosen ids i32 [tokens, k] -> i64 [groups, experts]: sum or
/// maximum of the tokens' votes for experts, in units of kVoteUnit.
Tensor expert_votes(const Tensor& logits, const RoutingOptions& router, const Tensor& ids,
                    const TokenGroups& groups, VoteOf of, bool maximum);

/// route() and the votes of its choice, weighted by `voter`, which differs from `router` in weights
/// alone: a single launch on a GPU. Sets `scores` and `votes`.
Routing route_and_vote(const Tensor& logits, const RoutingOptions& router,
                       const RoutingOptions& voter, const TokenGroups& groups, VoteOf of,
                       bool maximum, Tensor& scores, Tensor& votes);

/// votes i64 [groups, experts] -> u8 [groups, experts]: 1 for the `count` experts with most votes
/// (ties: the lower index) and for experts with at least `bar` votes.
Tensor coresets(const Tensor& votes, int64_t count, int64_t bar);

/// Choice of each token inside the coreset of its group, with `slots` slots; `vanilla` and its f32
/// `scores` from route(), cores u8 [groups, experts]; undefined: those that coresets() makes from
/// `votes`, `count` and `bar`, in the same launch on a GPU, or all experts without votes.
struct InsideChoice {
  Routing vanilla;
  Tensor scores, cores;
  InsideRule rule;
  int64_t slots = 0;
  Tensor votes{};
  int64_t count = 0, bar = 0;
};
Routing choose_inside(const Tensor& logits, const RoutingOptions& router, const TokenGroups& groups,
                      const InsideChoice& choice);

/// x [tokens, channels] of floats -> f32 [tokens]: sums of magnitudes, channel by channel.
Tensor magnitudes(const Tensor& x);
/// importance f32 [tokens] -> i8 [tokens]: 1 for the largest share `high` of each group, -1 for the
/// smallest share `low`, else 0.
Tensor token_fates(const Tensor& importance, const TokenGroups& groups, double low, double high);

/// Drops a tail with less than `beta` of a token's weight, in place; fates [tokens] or undefined.
/// With renormalisation, the remaining weights sum to `full`.
struct TailRule {
  double beta = 0;
  bool renormalise = false;
  float full = 1;
};
void drop_tail(Routing& routing, const TokenGroups& groups, const Tensor& fates,
               const TailRule& rule);

}  // namespace tessera::ops

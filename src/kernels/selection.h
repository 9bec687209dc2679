#pragma once

#include <bit>
#include <cstdint>

#include "kernels/route_token.h"
#include "tensor/dtype.h"

namespace tessera::kernels {

/// What a token's vote for one of its experts counts: 1, the weight that the router gives it before
/// its scale, or the fourth power of that. rank: for every expert what the router ranks it by, as a
/// number that compares alike; of these a maximum has a meaning, a sum none.
enum class VoteOf : uint8_t { presence, weight, fourth_power, rank };
/// One vote of weight 1. Votes are whole numbers, so that no order changes their sum; four million
/// tokens fit.
constexpr double kVoteUnit = 0x1p40;

/// A rank as a vote: not negative, and larger for a larger rank.
constexpr int64_t vote_of_rank(float rank) {
  const auto bits = std::bit_cast<uint32_t>(rank + 0.0f);  // -0 becomes 0
  return int64_t{(bits >> 31) != 0 ? ~bits : bits | 0x80000000u};
}

/// votes[g, e] = the sum, or the maximum, of what the tokens of group g give expert e.
struct VotesArgs {
  RouteArgs router;  ///< logits, how they weigh, and the ids that were chosen by them
  const int32_t* group_of = nullptr;  ///< [tokens], below 0: no vote
  int64_t groups = 0;
  VoteOf of = VoteOf::weight;
  bool maximum = false;
  int64_t* votes = nullptr;  ///< [groups, experts]
};

/// cores[g, e] = 1 for an expert that fewer than `count` others beat (by votes; equals: the lower
/// index), or that has at least `bar` votes; else 0.
struct CoresetsArgs {
  const int64_t* votes = nullptr;  ///< [groups, experts]
  int64_t groups = 0, experts = 0;
  int64_t count = 0, bar = 0;
  uint8_t* cores = nullptr;  ///< [groups, experts]
};

/// How experts are chosen inside a coreset.
struct InsideRule {
  /// What a chosen expert weighs: as if the router had no other experts than the coreset's, as in
  /// the vanilla layer, or scaled to the mass of the vanilla choice.
  enum class Weights : uint8_t { alone, vanilla, mass } weights = Weights::mass;
  /// The group limit of the router: over groups of the coreset, of all experts, or none.
  enum class Groups : uint8_t { masked, vanilla, none } groups = Groups::masked;
  int take = 0;               ///< experts of a token
  bool full_is_free = false;  ///< a full coreset chooses as the router
};

/// ids, weights [tokens, slots]: the choice of each token inside the coreset of its group; tokens
/// of no group (below 0) keep the router's. Slots that are left over are -1 with weight 0.
struct InsideArgs {
  RouteArgs router;                   ///< logits, scores, ids and weights as route() left them
  const int32_t* group_of = nullptr;  ///< [tokens]
  const uint8_t* cores = nullptr;     ///< [groups, experts]; null: all experts
  InsideRule rule;
  int slots = 0;
  int32_t* ids = nullptr;
  float* weights = nullptr;
};

/// sums[t] = the sum of |x[t, c]| over c, in order.
struct MagnitudesArgs {
  const void* x = nullptr;
  tensor::DType dtype = tensor::DType::f32;
  int64_t stride = 0, rows = 0, columns = 0;
  float* sums = nullptr;
};

/// fates[t] = 1 for the floor(high * n) tokens of largest importance among the n of a group, else
/// -1 for the floor(low * n) of smallest, else 0. Equals: the first token.
struct FatesArgs {
  const float* importance = nullptr;  ///< [tokens]
  const int32_t* group_of = nullptr;  ///< [tokens]
  int64_t tokens = 0, groups = 0;
  double low = 0, high = 0;
  int8_t* fates = nullptr;
};

/// In place: each token's choices fall by weight (equals: the lower expert) and lose the tail of
/// less than beta of their sum; with fate 1 they keep it, with fate -1 they lose all. Tokens of no
/// group stay as they are.
struct TailArgs {
  const int32_t* group_of = nullptr;  ///< [tokens]
  const int8_t* fates = nullptr;      ///< [tokens] or null: all 0
  int64_t tokens = 0;
  int slots = 0;
  double beta = 0;
  bool renormalise = false;  ///< what is left is scaled to `full`
  float full = 1;
  int32_t* ids = nullptr;    ///< [tokens, slots]
  float* weights = nullptr;  ///< [tokens, slots]
};

/// Token by token, over the steps of an instruction set.
void expert_votes(const VotesArgs& args, const RoutingSteps& steps);
void choose_inside(const InsideArgs& args, const RoutingSteps& steps);

namespace reference {
void expert_votes(const VotesArgs& args);
void coresets(const CoresetsArgs& args);
void choose_inside(const InsideArgs& args);
void magnitudes(const MagnitudesArgs& args);
void token_fates(const FatesArgs& args);
void drop_tail(const TailArgs& args);
}  // namespace reference
namespace avx512 {
void expert_votes(const VotesArgs& args);
void choose_inside(const InsideArgs& args);
}  // namespace avx512
namespace cuda {
void expert_votes(const VotesArgs& args);
void coresets(const CoresetsArgs& args);
/// A token a warp.
void choose_inside(const InsideArgs& args);
void magnitudes(const MagnitudesArgs& args);
void token_fates(const FatesArgs& args);
void drop_tail(const TailArgs& args);
}  // namespace cuda

}  // namespace tessera::kernels

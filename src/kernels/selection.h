#pragma once

#include <bit>
#include <cstdint>

#include "kernels/route_token.h"
#include "tensor/dtype.h"

namespace tessera::kernels {

/// Value of a token's vote for an expert: 1, the router weight before scaling, or the fourth power
/// of this weight. rank: for every expert, the router's rank as an integer with the same order;
/// only maxima of ranks are meaningful.
enum class VoteOf : uint8_t { presence, weight, fourth_power, rank };
/// A vote of weight 1. Votes are integers, so that sums do not depend on the order; four million
/// tokens fit.
constexpr double kVoteUnit = 0x1p40;

/// A rank as a vote: nonnegative and order-preserving.
constexpr int64_t vote_of_rank(float rank) {
  const auto bits = std::bit_cast<uint32_t>(rank + 0.0f);  // -0 becomes 0
  return int64_t{(bits >> 31) != 0 ? ~bits : bits | 0x80000000u};
}

/// votes[g, e] = sum, or maximum, of the votes of group g's tokens for expert e.
struct VotesArgs {
  RouteArgs router;                   ///< logits, weighting, and the chosen ids
  const int32_t* group_of = nullptr;  ///< [tokens], negative: no vote
  int64_t groups = 0;
  VoteOf of = VoteOf::weight;
  bool maximum = false;
  int64_t* votes = nullptr;  ///< [groups, experts]
  RouteArgs route{};  ///< the choice to make before, with the same ids; null logits: it is made
};

/// cores[g, e] = 1 for an expert with fewer than `count` better experts (by votes; ties: the lower
/// index), or with at least `bar` votes; else 0.
struct CoresetsArgs {
  const int64_t* votes = nullptr;  ///< [groups, experts]
  int64_t groups = 0, experts = 0;
  int64_t count = 0, bar = 0;
  uint8_t* cores = nullptr;  ///< [groups, experts]
};

/// Rule for choosing experts inside a coreset.
struct InsideRule {
  /// Weight of a chosen expert: as if the router had only the coreset's experts, as in the vanilla
  /// layer, or scaled to the mass of the vanilla choice.
  enum class Weights : uint8_t { alone, vanilla, mass } weights = Weights::mass;
  /// Group limit of the router: over groups of the coreset, of all experts, or none.
  enum class Groups : uint8_t { masked, vanilla, none } groups = Groups::masked;
  int take = 0;               ///< experts for each token
  bool full_is_free = false;  ///< a full coreset uses the router's choice
};

/// Coresets that a choice makes from votes, as CoresetsArgs.
struct Ballot {
  const int64_t* votes = nullptr;  ///< [groups, experts]; null: none
  int64_t groups = 0, count = 0, bar = 0;
};

/// ids, weights [tokens, slots]: the choice of each token inside the coreset of its group; tokens
/// without a group (negative) keep the router's choice. Unused slots are -1 with weight 0.
struct InsideArgs {
  RouteArgs router;                   ///< logits, scores, ids and weights from route()
  const int32_t* group_of = nullptr;  ///< [tokens]
  const uint8_t* cores = nullptr;     ///< [groups, experts]; null: all experts, or of a ballot
  InsideRule rule;
  int slots = 0;
  int32_t* ids = nullptr;
  float* weights = nullptr;
  Ballot ballot{};
};

/// sums[t] = the sum of |x[t, c]| over c, in order.
struct MagnitudesArgs {
  const void* x = nullptr;
  tensor::DType dtype = tensor::DType::f32;
  int64_t stride = 0, rows = 0, columns = 0;
  float* sums = nullptr;
};

/// fates[t] = 1 for the floor(high * n) tokens of largest importance among the n of a group, -1 for
/// the floor(low * n) of smallest, else 0. Ties: the first token.
struct FatesArgs {
  const float* importance = nullptr;  ///< [tokens]
  const int32_t* group_of = nullptr;  ///< [tokens]
  int64_t tokens = 0, groups = 0;
  double low = 0, high = 0;
  int8_t* fates = nullptr;
};

/// In place: sorts each token's choices by decreasing weight (ties: the lower expert) and drops a
/// tail with less than beta of their sum; with fate 1 keeps all, with fate -1 drops all. Tokens
/// without a group are unchanged.
struct TailArgs {
  const int32_t* group_of = nullptr;  ///< [tokens]
  const int8_t* fates = nullptr;      ///< [tokens] or null: all 0
  int64_t tokens = 0;
  int slots = 0;
  double beta = 0;
  bool renormalise = false;  ///< remaining weights are scaled to `full`
  float full = 1;
  int32_t* ids = nullptr;    ///< [tokens, slots]
  float* weights = nullptr;  ///< [tokens, slots]
};

/// Token by token, with the steps of an instruction set.
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
/// A warp handles a token; warps of a block share coresets.
void choose_inside(const InsideArgs& args);
void magnitudes(const MagnitudesArgs& args);
void token_fates(const FatesArgs& args);
void drop_tail(const TailArgs& args);
}  // namespace cuda

}  // namespace tessera::kernels

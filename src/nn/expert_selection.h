#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ops/routing.h"

namespace tessera::nn {

using tensor::Tensor;

/// Which experts the tokens of a block may use (dynamic expert sharing, DES), between the scores of
/// a router and its routing. Coreset rules: seq, the union of every token's `k` best; vote,
/// vote_max and vote_norm4, the floor(beta * experts) with the largest sum, maximum or fourth-power
/// norm of vanilla weights; peak, every expert that is worth a weight of beta to some token: as
/// many as a layer and a pass need. Each token then takes its best inside the coreset. Baselines:
/// topk; naee drops a token's tail of less than beta of its weight; mc does so but spares the share
/// `high` of important tokens and drops all routed experts of the share `low` of the least
/// important.
struct SelectionRule {
  enum class Method : uint8_t { vanilla, topk, seq, vote, vote_max, vote_norm4, peak, naee, mc };
  /// What a chosen expert weighs: A as if the router had no other experts, B as in the vanilla
  /// layer, D scaled to the mass of the vanilla choice (equal to A for routers that renormalise).
  enum class Weights : uint8_t { a, b, d };
  /// The group limit inside a coreset: groups of the coreset, of the vanilla choice, or none.
  enum class Groups : uint8_t { masked, vanilla, none };

  Method method = Method::vanilla;
  int k = 0;                   ///< topk, seq: experts of a token
  double beta = 1;             ///< vote*: share of the experts; peak: weight; others: share of it
  double low = 0, high = 0.1;  ///< mc: shares of the tokens
  int take = 0;                ///< experts that a token takes from the coreset; 0: as the model
  Weights weights = Weights::d;
  Groups groups = Groups::masked;
  bool batch = false;        ///< one coreset for all sequences of a pass; false: one each
  bool renormalise = false;  ///< naee, mc: what is left is scaled to the full mass

  bool coreset() const { return method >= Method::seq && method <= Method::peak; }
};

/// Reads "vanilla", "topk:K", "des-seq:K", "des-vote:BETA", "des-max:BETA", "des-norm4:BETA",
/// "des-peak:WEIGHT", "naee:BETA", "mc:BETA[,LOW[,HIGH]]", each with ",k=K", ",weights=A|B|D",
/// ",groups=masked|vanilla|none",
/// ",scope=sequence|batch", ",renormalise" behind. Throws Error(usage) naming what does not fit.
SelectionRule parse_selection(const std::string& text);
/// The rule as parse_selection reads it.
std::string to_string(const SelectionRule& rule);
/// Throws Error(usage) if the rule asks for more than a router of so many experts has, or for
/// nothing.
void check_selection(const SelectionRule& rule, int experts, int top_k);

/// Ranks that hold other tokens of the same coresets. All of them make the same calls.
class SelectionPeers {
 public:
  virtual ~SelectionPeers() = default;
  /// Over the ranks, element by element; in place, equal on all of them.
  virtual void sum(std::span<int64_t> values) = 0;
  virtual void max(std::span<int64_t> values) = 0;
};

/// The tokens of one call, by the coreset that they share: group_of[t] counts from 0, -1 stands for
/// the vanilla router. importance [tokens]: for mc only.
struct SelectionScope {
  std::span<const int32_t> group_of;
  std::span<const float> importance;
  /// If tokens are split over ranks: the others, groups of all of them, where my tokens begin among
  /// theirs, and how many there are.
  SelectionPeers* peers = nullptr;
  int groups = 0;
  int64_t first = 0, tokens = 0;
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

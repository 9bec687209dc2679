#pragma once

#include <cstdint>
#include <string>

namespace tessera::nn {

/// Which experts the tokens of a block may use (dynamic expert sharing, DES), between the scores of
/// a router and its routing. Coreset rules: seq, the union of every token's `k` best; vote,
/// vote_max and vote_norm4, the floor(beta * experts) with the largest sum, maximum or fourth-power
/// norm of vanilla weights; peak, every expert that is worth a weight of beta to some token: as
/// many as a layer and a pass need. Each token then takes its best inside the coreset. block: the
/// `k` experts that any token of so many in a row ranks highest (LLaDA2.2's block routing, which
/// its models are trained with). Baselines: topk; naee drops a token's tail of less than beta of
/// its weight; mc does so but spares the share `high` of important tokens and drops all routed
/// experts of the share `low` of the least important.
struct SelectionRule {
  enum class Method : uint8_t {
    vanilla,
    topk,
    seq,
    vote,
    vote_max,
    vote_norm4,
    peak,
    block,
    naee,
    mc
  };
  /// What a chosen expert weighs: A as if the router had no other experts, B as in the vanilla
  /// layer, D scaled to the mass of the vanilla choice (equal to A for routers that renormalise).
  enum class Weights : uint8_t { a, b, d };
  /// The group limit inside a coreset: groups of the coreset, of the vanilla choice, or none.
  enum class Groups : uint8_t { masked, vanilla, none };

  Method method = Method::vanilla;
  int k = 0;                   ///< topk, seq: experts of a token; block: of a block
  int block = 0;               ///< block: tokens that share a coreset
  double beta = 1;             ///< vote*: share of the experts; peak: weight; others: share of it
  double low = 0, high = 0.1;  ///< mc: shares of the tokens
  int take = 0;                ///< experts that a token takes from the coreset; 0: as the model
  Weights weights = Weights::d;
  Groups groups = Groups::masked;
  bool open =
      false;  ///< for tokens of a block or canvas that no pass has decided yet; else for all
  bool batch = false;        ///< one coreset for all sequences of a pass; false: one each
  bool renormalise = false;  ///< naee, mc: what is left is scaled to the full mass

  bool coreset() const { return method >= Method::seq && method <= Method::block; }
};

/// Reads "vanilla", "topk:K", "des-seq:K", "des-vote:BETA", "des-max:BETA", "des-norm4:BETA",
/// "des-peak:WEIGHT", "block:K,TOKENS", "naee:BETA", "mc:BETA[,LOW[,HIGH]]", each with ",k=K",
/// ",weights=A|B|D",
/// ",groups=masked|vanilla|none",
/// ",scope=sequence|batch", ",over=all|open", ",renormalise" behind. Throws Error(usage) naming
/// what does not fit.
SelectionRule parse_selection(const std::string& text);
/// The rule as parse_selection reads it.
std::string to_string(const SelectionRule& rule);
/// Throws Error(usage) if the rule asks for more than a router of so many experts has, or for
/// nothing.
void check_selection(const SelectionRule& rule, int experts, int top_k);

}  // namespace tessera::nn

#pragma once

#include <cstdint>
#include <string>

namespace tessera::nn {

/// The experts allowed for the tokens of a block (dynamic expert sharing, DES), between the scores
/// of a router and its routing. Coreset rules: seq, the union of every token's `k` best; vote,
/// vote_max and vote_norm4, the floor(beta * experts) with the largest sum, maximum or fourth-power
/// norm of vanilla weights; peak, every expert with a weight of beta for some token: as many as a
/// layer and a pass need. Each token then takes its best inside the coreset. block: the `k` experts
/// with the highest rank for any of `block` tokens in a row (LLaDA2.2's block routing, as in its
/// training). Baselines: topk; naee drops a token's tail of less than beta of its weight; mc does
/// the same but spares the share `high` of important tokens and drops all routed experts of the
/// least important share `low`.
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
  /// Weights of the chosen experts: A as if the router had no other experts, B as in the vanilla
  /// layer, D scaled to the mass of the vanilla choice (equal to A for renormalising routers).
  enum class Weights : uint8_t { a, b, d };
  /// The group limit inside a coreset: groups of the coreset, of the vanilla choice, or none.
  enum class Groups : uint8_t { masked, vanilla, none };
  /// How much a token's vote counts: the weight of the vanilla layer before its scale, or the
  /// router's score before the chosen ones are divided by their sum.
  enum class Votes : uint8_t { weight, score };

  Method method = Method::vanilla;
  int k = 0;                   ///< topk, seq: experts of a token; block: of a block
  int block = 0;               ///< block: tokens of a coreset
  double beta = 1;             ///< vote*: share of the experts; peak: weight; others: share of it
  double low = 0, high = 0.1;  ///< mc: shares of the tokens
  int take = 0;                ///< experts of a token inside the coreset; 0: as the model
  Weights weights = Weights::d;
  Groups groups = Groups::masked;
  Votes votes = Votes::weight;
  bool open =
      false;  ///< only for tokens of a block or canvas without a decision yet; otherwise for all
  bool batch = false;        ///< a coreset for all sequences of a pass; false: for each
  bool renormalise = false;  ///< naee, mc: scales the rest to the full mass

  bool coreset() const { return method >= Method::seq && method <= Method::block; }
};

/// Reads "vanilla", "topk:K", "des-seq:K", "des-vote:BETA", "des-max:BETA",
/// "des-norm4:BETA", "des-peak:WEIGHT", "block:K,TOKENS", "naee:BETA",
/// "mc:BETA[,LOW[,HIGH]]", each with ",k=K", ",weights=A|B|D",
/// ",groups=masked|vanilla|none", ",scope=sequence|batch",
/// ",over=all|open", ",votes=weight|score", ",renormalise" behind. Throws Error(usage) for invalid
/// parts.
SelectionRule parse_selection(const std::string& text);
/// The rule in the form of parse_selection.
std::string to_string(const SelectionRule& rule);
/// Throws Error(usage) for a rule above the router's number of experts, or without
/// effect.
void check_selection(const SelectionRule& rule, int experts, int top_k);

}  // namespace tessera::nn

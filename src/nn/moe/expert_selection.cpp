#include "nn/moe/expert_selection.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/fail.h"
#include "ops/selection.h"

namespace tessera::nn {
namespace {

using Method = SelectionRule::Method;
using Cores = std::vector<std::vector<uint8_t>>;
using ops::RoutingOptions;
using ops::TokenGroups;

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

int groups_in(const SelectionScope& scope) {
  int32_t last = -1;
  for (int32_t g : scope.group_of) last = std::max(last, g);
  return std::max(last + 1, scope.groups);
}

ops::InsideRule inside_rule(const SelectionRule& rule, const RoutingOptions& router) {
  const int take = rule.take ? rule.take : router.top_k;
  const bool as_model = take == router.top_k && (rule.groups != SelectionRule::Groups::none ||
                                                 router.groups == router.top_groups);
  return {static_cast<ops::InsideRule::Weights>(rule.weights),
          static_cast<ops::InsideRule::Groups>(rule.groups), take, as_model};
}

// Sums over the ranks with tokens of the same groups; whole numbers, on the host.
Tensor merged(const Tensor& votes, SequencePeers* peers, bool maximum) {
  if (!peers || votes.is_meta() || votes.elements() == 0) return votes;
  const Tensor host = votes.to(tensor::Device::cpu);
  const std::span<int64_t> values(host.data<int64_t>(), static_cast<size_t>(host.elements()));
  if (maximum)
    peers->max(values);
  else
    peers->sum(values);
  return host.to(votes.device());
}

// Votes by score do not see how a router divides the scores of the chosen experts.
RoutingOptions voting_router(RoutingOptions router, const SelectionRule& rule) {
  if (rule.votes == SelectionRule::Votes::weight) return router;
  require(router.renormalise, ErrorCode::usage,
          "`select` '{}': votes=score changes nothing here, this router does not divide "
          "scores by their sum; leave it out",
          to_string(rule));
  router.renormalise = false;
  return router;
}

ops::VoteOf vote_of(const SelectionRule& rule) {
  switch (rule.method) {
    case Method::seq: return ops::VoteOf::presence;
    case Method::vote_norm4: return ops::VoteOf::fourth_power;
    case Method::block: return ops::VoteOf::rank;
    default: return ops::VoteOf::weight;
  }
}

// The router with as many experts as vote: under des-seq the k best of all tokens.
RoutingOptions voters_of(const RoutingOptions& router, const SelectionRule& rule, int experts) {
  if (rule.method != Method::seq) return voting_router(router, rule);
  RoutingOptions few = router;
  few.top_k = std::min(rule.k, experts);
  return few;
}

// The router's choice, and votes and their counting for coresets.
ops::InsideChoice voted(const Tensor& logits, const RoutingOptions& router,
                        const SelectionRule& rule, const TokenGroups& groups,
                        SequencePeers* peers) {
  const auto experts = static_cast<int>(logits.size(1));
  const RoutingOptions voters = voters_of(router, rule, experts);
  const bool maximum =
      rule.method == Method::seq || rule.method >= Method::peak || rule.method == Method::vote_max;
  ops::InsideChoice choice;
  if (voters.top_k == router.top_k) {
    choice.vanilla = ops::route_and_vote(logits, router, voters, groups, vote_of(rule), maximum,
                                         choice.scores, choice.votes);
  } else {
    choice.vanilla = ops::route(logits, router, &choice.scores);
    choice.votes = ops::expert_votes(logits, voters, ops::route(logits, voters).ids, groups,
                                     vote_of(rule), maximum);
  }
  choice.votes = merged(choice.votes, peers, maximum);
  choice.bar = kNone;
  if (rule.method == Method::seq) {
    choice.bar = 1;
  } else if (rule.method == Method::peak) {  // or the most voted one
    choice.count = 1;
    choice.bar = std::llround(rule.beta * ops::kVoteUnit);
  } else {
    choice.count = rule.method == Method::block
                       ? rule.k
                       : static_cast<int64_t>(std::floor(rule.beta * experts));
  }
  return choice;
}

// Importances of the tokens of all ranks decide the fates of the own ones. One rank fills each
// token's place, so sums with zeros keep all bits.
Tensor fates_of(const SelectionRule& rule, const SelectionScope& scope, const TokenGroups& groups) {
  require(scope.importance.defined(), ErrorCode::usage, "mc: no importances of the tokens");
  if (!scope.peers) return ops::token_fates(scope.importance, groups, rule.low, rule.high);
  const auto first = static_cast<size_t>(scope.peers->first());
  std::vector<int64_t> words(static_cast<size_t>(token_count(scope.peers->tokens())));
  const std::vector<float> importances = scope.importance.to_floats();
  for (size_t t = 0; t < importances.size(); ++t)
    words[first + t] =
        int64_t{scope.group_of[t] + 1} << 32 | std::bit_cast<uint32_t>(importances[t]);
  scope.peers->sum(words);
  std::vector<int32_t> group_of;
  std::vector<float> importance;
  for (const int64_t word : words) {
    group_of.push_back(static_cast<int32_t>(word >> 32) - 1);
    importance.push_back(std::bit_cast<float>(static_cast<uint32_t>(word)));
  }
  const auto begin = static_cast<int64_t>(first), count = static_cast<int64_t>(words.size());
  return ops::token_fates(Tensor::from(std::span<const float>(importance), {count}),
                          {group_of, groups.count}, rule.low, rule.high)
      .slice(0, begin, begin + static_cast<int64_t>(importances.size()))
      .to(scope.importance.device());
}

Cores on_host(const Tensor& cores, int64_t groups, int64_t experts) {
  Cores flags(static_cast<size_t>(groups), std::vector<uint8_t>(static_cast<size_t>(experts), 1));
  if (!cores.defined()) return flags;
  const Tensor host = cores.to(tensor::Device::cpu);
  for (size_t g = 0; g < flags.size(); ++g)
    std::copy_n(host.data<uint8_t>() + static_cast<int64_t>(g) * experts, experts,
                flags[g].begin());
  return flags;
}

}  // namespace

ops::Routing select_experts(const Tensor& logits, const RoutingOptions& router,
                            const SelectionRule& rule, const SelectionScope& scope, Cores* cores) {
  const bool topk = rule.method == Method::topk;
  const int slots = topk ? rule.k : rule.take ? rule.take : router.top_k;
  const TokenGroups groups{scope.group_of, groups_in(scope)};
  const bool inside = rule.coreset() || topk;
  if (!logits.is_meta()) check_selection(rule, static_cast<int>(logits.size(1)), router.top_k);
  ops::InsideChoice choice;
  if (rule.coreset())
    choice = voted(logits, router, rule, groups, scope.peers);
  else
    choice.vanilla = ops::route(logits, router, inside ? &choice.scores : nullptr);
  choice.slots = std::max(router.top_k, slots);
  if (cores) {
    if (choice.votes.defined())
      choice.cores = ops::coresets(choice.votes, choice.count, choice.bar);
    *cores = on_host(choice.cores, groups.count, logits.size(1));
  }
  if (rule.method == Method::naee || rule.method == Method::mc) {
    const Tensor fates =
        rule.method == Method::mc && !logits.is_meta() ? fates_of(rule, scope, groups) : Tensor();
    ops::drop_tail(choice.vanilla, groups, fates, {rule.beta, rule.renormalise, router.scale});
  }
  if (!inside) return choice.vanilla;
  choice.rule = inside_rule(rule, router);
  if (topk)  // the model's own router with another k
    choice.rule = {
        router.renormalise ? ops::InsideRule::Weights::alone : ops::InsideRule::Weights::vanilla,
        ops::InsideRule::Groups::masked, rule.k, false};
  return ops::choose_inside(logits, router, groups, choice);
}

ops::Routing route_inside(const Tensor& logits, const RoutingOptions& router,
                          const SelectionRule& rule, const SelectionScope& scope,
                          const Cores& cores) {
  const int64_t experts = logits.size(1), groups = static_cast<int64_t>(cores.size());
  ops::InsideChoice choice;
  choice.slots = std::max(router.top_k, rule.take);
  choice.vanilla = ops::route(logits, router, &choice.scores);
  const Tensor flags = Tensor::empty({groups, experts}, tensor::DType::u8);
  for (int64_t g = 0; g < groups; ++g)
    std::copy_n(cores[static_cast<size_t>(g)].begin(), experts,
                flags.data<uint8_t>() + g * experts);
  choice.cores = flags.to(logits.device());
  choice.rule = inside_rule(rule, router);
  return ops::choose_inside(logits, router, {scope.group_of, groups}, choice);
}

}  // namespace tessera::nn

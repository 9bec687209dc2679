#pragma once

#include <array>
#include <cmath>
#include <vector>

#include "kernels/random_values.h"
#include "kernels/selection.h"
#include "kernels/table.h"
#include "kernels/where.h"

namespace tessera::kernels {

inline constexpr RouteArgs kRouters[] = {
    {.top_k = 4},
    {.top_k = 4, .renormalise = true},
    {.sigmoid = true, .groups = 4, .top_groups = 2, .top_k = 4, .renormalise = true, .scale = 2.5f},
    {.sigmoid = true, .groups = 8, .top_groups = 3, .top_k = 4, .scale = 2}};

inline constexpr InsideRule kInsideRules[] = {
    {InsideRule::Weights::mass, InsideRule::Groups::masked, 4, true},
    {InsideRule::Weights::alone, InsideRule::Groups::vanilla, 6, false},
    {InsideRule::Weights::vanilla, InsideRule::Groups::none, 2, false}};

/// The results of a selection's kernels, step by step.
struct Choice {
  tensor::Tensor vanilla;               ///< ids [tokens, top_k]
  std::array<tensor::Tensor, 5> votes;  ///< sums, maxima, fourth powers, presence, ranks
  tensor::Tensor cores, ids, weights;
};

/// Tokens in two groups, some in none. Logits in quarters: there are many ties.
struct SelectionProblem {
  static constexpr int kSlots = 6;
  static constexpr int64_t kGroups = 2;

  SelectionProblem(const RouteArgs& r, int64_t tokens, int64_t experts)
      : rule(r), logits(random_tensor({tokens, experts}, tensor::DType::f32, 3)) {
    for (int64_t i = 0; i < logits.elements(); ++i)
      logits.data<float>()[i] = std::round(4 * logits.data<float>()[i]) / 4;
    if (rule.sigmoid) bias = random_tensor({experts}, tensor::DType::f32, 8, 0.5f);
    for (int64_t t = 0; t < tokens; ++t)
      group_of.push_back(static_cast<int32_t>(t % 5 == 4 ? -1 : t % 3 == 0));
  }

  Choice choose(const KernelTable& table, const InsideRule& inside = kInsideRules[0],
                const Where& at = kHost) const {
    using tensor::DType;
    using tensor::Tensor;
    const Placed p(*this, at);
    const RouteArgs& route = p.route;
    const int64_t tokens = route.tokens, experts = route.experts;
    const auto made = [&](const tensor::Shape& shape, DType dtype) {
      return Tensor::empty(shape, dtype, at.device);
    };
    table.route(route);
    Choice c;
    c.vanilla = here(p.vanilla);
    const int32_t* const of = p.of();
    const std::pair<VoteOf, bool> ways[] = {{VoteOf::weight, false},
                                            {VoteOf::weight, true},
                                            {VoteOf::fourth_power, false},
                                            {VoteOf::presence, true},
                                            {VoteOf::rank, true}};
    Tensor first;
    for (size_t v = 0; v < c.votes.size(); ++v) {
      const Tensor votes = made({kGroups, experts}, DType::i64);
      table.expert_votes(
          {route, of, kGroups, ways[v].first, ways[v].second, votes.data<int64_t>()});
      c.votes[v] = here(votes);
      if (v == 0) first = votes;
    }
    const Tensor cores = made({kGroups, experts}, DType::u8);
    table.coresets({first.data<int64_t>(), kGroups, experts, experts / 3, int64_t{1} << 62,
                    cores.data<uint8_t>()});
    const Tensor ids = made({tokens, kSlots}, DType::i32), out = made({tokens, kSlots}, DType::f32);
    table.choose_inside(
        {route, of, cores.data<uint8_t>(), inside, kSlots, ids.data<int32_t>(), out.data<float>()});
    c.cores = here(cores), c.ids = here(ids), c.weights = here(out);
    return c;
  }

  /// The same with two calls: of the votes by weight only.
  Choice choose_in_two(const KernelTable& table, const InsideRule& inside = kInsideRules[0],
                       const Where& at = kHost) const {
    using tensor::DType;
    using tensor::Tensor;
    const Placed p(*this, at);
    const int64_t tokens = p.route.tokens, experts = p.route.experts;
    const Tensor votes = at(Tensor::from(std::vector<float>(size_t(2 * kGroups * experts), 7.5f),
                                         {2 * kGroups * experts}));
    auto* const counted = static_cast<int64_t*>(votes.raw());
    VotesArgs ask{.router = p.route, .route = p.route};
    ask.group_of = p.of(), ask.groups = kGroups;
    ask.votes = counted;
    table.expert_votes(ask);
    const Tensor ids = Tensor::empty({tokens, kSlots}, DType::i32, at.device),
                 out = Tensor::empty({tokens, kSlots}, DType::f32, at.device);
    InsideArgs choice{.router = p.route};
    choice.group_of = ask.group_of;
    choice.ballot = {counted, kGroups, experts / 3, int64_t{1} << 62};
    choice.rule = inside, choice.slots = kSlots;
    choice.ids = ids.data<int32_t>(), choice.weights = out.data<float>();
    table.choose_inside(choice);
    Choice c;
    c.vanilla = here(p.vanilla), c.ids = here(ids), c.weights = here(out);
    c.votes[0] = here(votes).bits_as(DType::i64).reshape({kGroups, experts});
    return c;
  }

  /// The inputs at a place, and room for the router's results.
  struct Placed {
    Placed(const SelectionProblem& of, const Where& at)
        : logits(at(of.logits)),
          bias(at(of.bias)),
          groups(at(of.group_of)),
          vanilla(tensor::Tensor::empty({logits.size(0), of.rule.top_k}, tensor::DType::i32,
                                        at.device)),
          weights(tensor::Tensor::empty(vanilla.shape(), tensor::DType::f32, at.device)),
          scores(tensor::Tensor::empty(logits.shape(), tensor::DType::f32, at.device)),
          route(of.rule) {
      route.logits = logits.data<float>();
      route.tokens = logits.size(0), route.experts = logits.size(1);
      if (bias.defined()) route.bias = bias.data<float>();
      route.ids = vanilla.data<int32_t>(), route.weights = weights.data<float>();
      route.scores = scores.data<float>();
    }
    const int32_t* of() const { return static_cast<const int32_t*>(groups.raw()); }

    tensor::Tensor logits, bias, groups, vanilla, weights, scores;
    RouteArgs route;
  };

  RouteArgs rule;
  tensor::Tensor logits, bias;
  std::vector<int32_t> group_of;
};

}  // namespace tessera::kernels

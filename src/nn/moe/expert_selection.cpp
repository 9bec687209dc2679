#include "nn/moe/expert_selection.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>

#include "base/fail.h"
#include "tensor/scope.h"

namespace tessera::nn {
namespace {

using Method = SelectionRule::Method;
using ops::RoutingOptions;

constexpr float kClosed = -std::numeric_limits<float>::infinity();
constexpr double kFixed = 0x1p40;  // votes are at most 1 each: four million tokens fit
constexpr double kHalf = 0.5;      // rounds what is not negative, without a call

bool sigmoid(const RoutingOptions& o) { return o.score == RoutingOptions::Score::sigmoid; }

int groups_in(const SelectionScope& scope) {
  int32_t last = -1;
  for (int32_t g : scope.group_of) last = std::max(last, g);
  return std::max(last + 1, scope.groups);
}

// ---- the first pass: vanilla choice and votes

bool by_maximum(Method method) { return method == Method::vote_max || method == Method::peak; }

struct Votes {
  std::vector<int64_t> of;  // [groups, experts]
  void add(Method method, size_t at, double weight) {
    const double power = method == Method::vote_norm4 ? weight * weight * weight * weight : weight;
    const auto vote = static_cast<int64_t>(power * kFixed + kHalf);
    of[at] = by_maximum(method) ? std::max(of[at], vote) : of[at] + vote;
  }
  void merge(Method method, const Votes& other) {
    for (size_t i = 0; i < of.size(); ++i)
      of[i] = by_maximum(method) ? std::max(of[i], other.of[i]) : of[i] + other.of[i];
  }
};

// Votes of a token: its vanilla weights before the scale, in doubles, so that equal logits give
// equal votes wherever they stand.
void vote(const ops::TokenScores& scores, const RoutingOptions& o, Method method,
          const int32_t* ids, size_t first, Votes& votes) {
  double chosen = 1;
  if (o.renormalise) {
    chosen = sigmoid(o) ? 1e-20 : 0;
    for (int j = 0; j < o.top_k; ++j)
      if (ids[j] >= 0) chosen += scores.exact[static_cast<size_t>(ids[j])];
  }
  for (int j = 0; j < o.top_k; ++j)
    if (ids[j] >= 0)
      votes.add(method, first + static_cast<size_t>(ids[j]),
                scores.exact[static_cast<size_t>(ids[j])] / chosen);
}

struct FirstPass {
  ops::Routing vanilla;  // with all slots, empty ones behind
  Tensor score;          // f32 [tokens, experts]; of rules with coresets, and topk
  Votes votes;
};

bool votes_count(const SelectionRule& rule) { return rule.coreset() && rule.method != Method::seq; }

FirstPass first_pass(const Tensor& logits, const RoutingOptions& router, const SelectionRule& rule,
                     std::span<const int32_t> group_of, int groups, int64_t slots) {
  ops::check_route(logits, router);
  const int64_t tokens = logits.size(0), experts = logits.size(1);
  FirstPass made{{Tensor::empty({tokens, slots}, tensor::DType::i32),
                  Tensor::empty({tokens, slots}, tensor::DType::f32)},
                 Tensor::empty({tokens, experts}, tensor::DType::f32),
                 {}};
  if (tensor::Meter* meter = tensor::current_scope().meter.get())
    meter->add("route", 4 * static_cast<double>(logits.elements()),
               static_cast<double>(logits.bytes() + tokens * slots * 8));
  const bool counted = votes_count(rule);
  if (counted) made.votes.of.resize(static_cast<size_t>(groups * experts));
  std::mutex merging;
  tensor::parallel_for(tokens, 64, [&](int64_t begin, int64_t end) {
    ops::TokenScores scores(experts);
    Votes mine{std::vector<int64_t>(made.votes.of.size())};
    for (int64_t t = begin; t < end; ++t) {
      int32_t* ids = made.vanilla.ids.row<int32_t>(t);
      float* weights = made.vanilla.weights.row<float>(t);
      ops::route_token(logits.row<float>(t), router, scores, ids, weights);
      std::fill(ids + router.top_k, ids + slots, -1);
      std::fill(weights + router.top_k, weights + slots, 0.0f);
      std::copy_n(scores.score.data(), experts, made.score.row<float>(t));
      if (const int32_t g = group_of[static_cast<size_t>(t)]; counted && g >= 0)
        vote(scores, router, rule.method, ids, static_cast<size_t>(g * experts), mine);
    }
    if (!counted) return;
    const std::lock_guard lock(merging);
    made.votes.merge(rule.method, mine);
  });
  return made;
}

// ---- coresets

std::vector<uint8_t> most_voted(std::span<const int64_t> votes, size_t count) {
  std::vector<size_t> order(votes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return votes[a] > votes[b]; });
  std::vector<uint8_t> core(votes.size());
  for (size_t i = 0; i < count; ++i) core[order[i]] = 1;
  return core;
}

// Experts that some token gives at least this vote, or else the most voted one; all at 0.
std::vector<uint8_t> voted_at_least(std::span<const int64_t> votes, double least) {
  const int64_t bar = std::llround(least * kFixed);
  std::vector<uint8_t> core(votes.size());
  for (size_t e = 0; e < votes.size(); ++e) core[e] = votes[e] >= bar;
  core[static_cast<size_t>(std::max_element(votes.begin(), votes.end()) - votes.begin())] = 1;
  return core;
}

using Cores = std::vector<std::vector<uint8_t>>;

// Experts that any rank's tokens want.
void unite(Cores& cores, RowPeers* peers) {
  if (!peers || cores.empty()) return;
  std::vector<int64_t> flags;
  for (const auto& core : cores) flags.insert(flags.end(), core.begin(), core.end());
  peers->max(flags);
  size_t at = 0;
  for (auto& core : cores)
    for (uint8_t& flag : core) flag = static_cast<uint8_t>(flags[at++]);
}

Cores make_cores(const Tensor& logits, const RoutingOptions& router, const SelectionRule& rule,
                 FirstPass& pass, const SelectionScope& scope, int groups) {
  const std::span<const int32_t> group_of = scope.group_of;
  const auto experts = static_cast<size_t>(logits.size(1));
  Cores cores(static_cast<size_t>(groups), std::vector<uint8_t>(experts, 1));
  if (!rule.coreset()) return cores;
  if (rule.method != Method::seq) {
    Votes& votes = pass.votes;
    if (scope.peers && groups > 0) {
      if (by_maximum(rule.method))
        scope.peers->max(votes.of);
      else
        scope.peers->sum(votes.of);
    }
    const auto count = static_cast<size_t>(std::floor(rule.beta * double(experts)));
    for (size_t g = 0; g < cores.size(); ++g) {
      const auto mine = std::span(votes.of).subspan(g * experts, experts);
      cores[g] =
          rule.method == Method::peak ? voted_at_least(mine, rule.beta) : most_voted(mine, count);
    }
    return cores;
  }
  for (auto& core : cores) std::fill(core.begin(), core.end(), uint8_t{0});
  RoutingOptions few = router;
  few.top_k = std::min(rule.k, static_cast<int>(experts));
  const ops::Routing best = few.top_k == router.top_k ? pass.vanilla : ops::route(logits, few);
  for (int64_t t = 0; t < logits.size(0); ++t)
    if (const int32_t g = group_of[static_cast<size_t>(t)]; g >= 0)
      for (int j = 0; j < few.top_k; ++j)
        if (const int32_t e = best.ids.row<int32_t>(t)[j]; e >= 0)
          cores[static_cast<size_t>(g)][static_cast<size_t>(e)] = 1;
  unite(cores, scope.peers);
  return cores;
}

// ---- the choice inside a coreset

class CoreChooser {
 public:
  CoreChooser(const RoutingOptions& router, const SelectionRule& rule, int64_t experts)
      : o_(router), rule_(rule), rank_(static_cast<size_t>(experts)) {}

  // closed [experts]: 0 inside the coreset, -inf outside.
  void operator()(const float* logits, const float* score, const std::vector<float>& closed,
                  const int32_t* vanilla, int slots, int32_t* ids, float* weights) {
    const int take = rule_.take ? rule_.take : o_.top_k;
    choose(logits, score, closed, take, ids);
    std::fill(ids + take, ids + slots, -1);
    float chosen = sigmoid(o_) ? 1e-20f : 0;
    for (int j = 0; j < slots; ++j) {
      weights[j] = ids[j] < 0 ? 0 : score[ids[j]];
      chosen += weights[j];
    }
    const float factor = factor_of(score, closed, vanilla, chosen);
    for (int j = 0; j < slots; ++j) weights[j] = ids[j] < 0 ? 0 : weights[j] * factor;
  }

 private:
  void choose(const float* logits, const float* score, const std::vector<float>& closed, int take,
              int32_t* ids) {
    using Groups = SelectionRule::Groups;
    const bool limited = o_.top_groups < o_.groups && rule_.groups != Groups::none;
    if (!sigmoid(o_) && !limited)
      return ops::best_k({logits, closed.size()}, closed.data(), take, ids);
    ops::router_ranks(logits, score, o_, rank_);
    if (limited && rule_.groups == Groups::vanilla)
      ops::limit_groups(rank_, o_.groups, o_.top_groups);
    for (size_t e = 0; e < closed.size(); ++e) rank_[e] += closed[e];
    if (limited && rule_.groups == Groups::masked)
      ops::limit_groups(rank_, o_.groups, o_.top_groups);
    ops::best_k(rank_, nullptr, take, ids);
  }

  float factor_of(const float* score, const std::vector<float>& closed, const int32_t* vanilla,
                  float chosen) const {
    using Weights = SelectionRule::Weights;
    float mass = sigmoid(o_) ? 1e-20f : 0;
    for (int j = 0; j < o_.top_k; ++j)
      if (vanilla[j] >= 0) mass += score[vanilla[j]];
    if (o_.renormalise) return o_.scale / (rule_.weights == Weights::b ? mass : chosen);
    if (rule_.weights == Weights::b || chosen <= 0) return o_.scale;
    if (rule_.weights == Weights::d) return o_.scale * (mass / chosen);
    if (sigmoid(o_)) return o_.scale;  // scores of a sigmoid do not know of each other
    float inside = 0;
    for (size_t e = 0; e < closed.size(); ++e)
      if (closed[e] == 0) inside += score[e];
    return o_.scale / inside;
  }

  const RoutingOptions& o_;
  const SelectionRule& rule_;
  std::vector<float> rank_;
};

// ---- baselines

// Falling weight, ties to the lowest expert; then the tail of less than beta of the mass goes.
void drop_tail(int32_t* ids, float* weights, int slots, double beta, float full, bool renormalise) {
  std::vector<std::pair<float, int32_t>> kept;
  for (int j = 0; j < slots; ++j)
    if (ids[j] >= 0) kept.emplace_back(weights[j], ids[j]);
  std::stable_sort(kept.begin(), kept.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  double total = 0, tail = 0;
  for (const auto& [weight, id] : kept) total += double(weight);
  size_t keep = kept.size();
  while (keep > 1 && tail + double(kept[keep - 1].first) < beta * total)
    tail += double(kept[--keep].first);
  const float scale = renormalise ? static_cast<float>(double(full) / (total - tail)) : 1.0f;
  for (size_t j = 0; j < static_cast<size_t>(slots); ++j) {
    ids[j] = j < keep ? kept[j].second : -1;
    weights[j] = j < keep ? kept[j].first * scale : 0;
  }
}

// The groups and importances of the tokens of all ranks, in their order.
struct AllTokens {
  std::vector<int32_t> group_of;
  std::vector<float> importance;
  explicit AllTokens(const SelectionScope& mine)
      : group_of(static_cast<size_t>(mine.tokens)), importance(group_of.size()) {
    // Each token's place is filled by one rank: sums with zeros carry any bits.
    std::vector<int64_t> words(group_of.size());
    for (size_t t = 0; t < mine.group_of.size(); ++t)
      words[static_cast<size_t>(mine.first) + t] =
          int64_t{mine.group_of[t] + 1} << 32 | std::bit_cast<uint32_t>(mine.importance[t]);
    mine.peers->sum(words);
    for (size_t t = 0; t < words.size(); ++t) {
      group_of[t] = static_cast<int32_t>(words[t] >> 32) - 1;
      importance[t] = std::bit_cast<float>(static_cast<uint32_t>(words[t]));
    }
  }
};

// 1: spared, -1: loses all its routed experts, by importance within each group.
std::vector<int8_t> ranks_of(const SelectionRule& rule, const SelectionScope& scope, int groups) {
  std::vector<int8_t> fate(scope.group_of.size());
  if (rule.method != Method::mc) return fate;
  require(scope.importance.size() == fate.size(), ErrorCode::usage,
          "mc: {} importances for {} tokens", scope.importance.size(), fate.size());
  if (scope.peers) {
    const AllTokens all(scope);
    const auto fates = ranks_of(rule, {all.group_of, all.importance}, groups);
    std::copy_n(fates.begin() + scope.first, fate.size(), fate.begin());
    return fate;
  }
  for (int g = 0; g < groups; ++g) {
    std::vector<size_t> order;
    for (size_t t = 0; t < fate.size(); ++t)
      if (scope.group_of[t] == g) order.push_back(t);
    const auto high = static_cast<size_t>(std::floor(rule.high * double(order.size())));
    const auto low = static_cast<size_t>(std::floor(rule.low * double(order.size())));
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return scope.importance[a] < scope.importance[b]; });
    for (size_t i = 0; i < low; ++i) fate[order[i]] = -1;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return scope.importance[a] > scope.importance[b]; });
    for (size_t i = 0; i < high; ++i) fate[order[i]] = 1;
  }
  return fate;
}

void apply_tail(ops::Routing& routing, const RoutingOptions& router, const SelectionRule& rule,
                const SelectionScope& scope, int groups) {
  const std::vector<int8_t> fate = ranks_of(rule, scope, groups);
  const int slots = static_cast<int>(routing.ids.size(1));
  for (int64_t t = 0; t < routing.ids.size(0); ++t) {
    const auto at = static_cast<size_t>(t);
    if (scope.group_of[at] < 0) continue;
    int32_t* ids = routing.ids.row<int32_t>(t);
    float* weights = routing.weights.row<float>(t);
    drop_tail(ids, weights, slots, fate[at] > 0 ? 0 : rule.beta, router.scale, rule.renormalise);
    if (fate[at] >= 0) continue;
    std::fill_n(ids, slots, -1);
    std::fill_n(weights, slots, 0.0f);
  }
}

// Overwrites the vanilla routing of tokens whose coreset is not all experts.
void choose_inside(ops::Routing& routing, const Tensor& logits, const Tensor& score,
                   const RoutingOptions& router, const SelectionRule& rule,
                   const SelectionScope& scope, const Cores& cores) {
  const auto slots = static_cast<int>(routing.ids.size(1));
  const bool as_model =
      rule.method != Method::topk && (rule.take == 0 || rule.take == router.top_k) &&
      (rule.groups != SelectionRule::Groups::none || router.groups == router.top_groups);
  std::vector<bool> full;
  std::vector<std::vector<float>> closed;
  for (const auto& core : cores) {
    full.push_back(as_model && std::find(core.begin(), core.end(), 0) == core.end());
    closed.emplace_back(core.size());
    for (size_t e = 0; e < core.size(); ++e) closed.back()[e] = core[e] ? 0 : kClosed;
  }
  tensor::parallel_for(logits.size(0), 64, [&](int64_t begin, int64_t end) {
    CoreChooser choose(router, rule, logits.size(1));
    std::vector<int32_t> vanilla(static_cast<size_t>(slots));
    for (int64_t t = begin; t < end; ++t) {
      const int32_t group = scope.group_of[static_cast<size_t>(t)];
      if (group < 0 || full[static_cast<size_t>(group)]) continue;
      int32_t* ids = routing.ids.row<int32_t>(t);
      std::copy_n(ids, slots, vanilla.data());
      choose(logits.row<float>(t), score.row<float>(t), closed[static_cast<size_t>(group)],
             vanilla.data(), slots, ids, routing.weights.row<float>(t));
    }
  });
}

ops::Routing on_meta(const Tensor& logits, const RoutingOptions& router, int64_t slots) {
  const ops::Routing few = ops::route(logits, router);  // counts
  const tensor::Shape shape{logits.size(0), slots};
  return {Tensor::empty(shape, few.ids.dtype(), few.ids.device()),
          Tensor::empty(shape, few.weights.dtype(), few.weights.device())};
}

// Policies look at scores on the host; what they choose goes to where the scores were.
RoutingOptions on_host(RoutingOptions router) {
  router.bias = router.bias.to(tensor::Device::cpu);
  return router;
}
ops::Routing beside(const Tensor& scores, const ops::Routing& made) {
  return {made.ids.to(scores.device()), made.weights.to(scores.device())};
}

}  // namespace

ops::Routing select_experts(const Tensor& all, const RoutingOptions& options,
                            const SelectionRule& rule, const SelectionScope& scope,
                            std::vector<std::vector<uint8_t>>* cores) {
  const int taken = rule.method == Method::topk ? rule.k : rule.take ? rule.take : options.top_k;
  const int64_t slots = std::max(options.top_k, taken);
  if (all.is_meta()) return on_meta(all, options, slots);
  const Tensor logits = all.to(tensor::Device::cpu);
  const RoutingOptions router = on_host(options);
  require(static_cast<int64_t>(scope.group_of.size()) == logits.size(0), ErrorCode::usage,
          "select_experts: {} groups for {} tokens", scope.group_of.size(), logits.size(0));
  check_selection(rule, static_cast<int>(logits.size(1)), router.top_k);
  const int groups = groups_in(scope);
  FirstPass pass = first_pass(logits, router, rule, scope.group_of, groups, slots);
  const Cores made = make_cores(logits, router, rule, pass, scope, groups);
  ops::Routing& routing = pass.vanilla;
  if (cores) *cores = made;
  if (rule.method == Method::naee || rule.method == Method::mc) {
    apply_tail(routing, router, rule, scope, groups);
    return beside(all, routing);
  }
  if (rule.method == Method::vanilla) return beside(all, routing);
  if (rule.method != Method::topk) {
    choose_inside(routing, logits, pass.score, router, rule, scope, made);
    return beside(all, routing);
  }
  RoutingOptions model = router;  // the model's own router with another k
  model.top_k = rule.k;
  SelectionRule inside{.method = Method::topk, .weights = SelectionRule::Weights::b};
  if (model.renormalise) inside.weights = SelectionRule::Weights::a;
  choose_inside(routing, logits, pass.score, model, inside, scope, made);
  return beside(all, routing);
}

ops::Routing route_inside(const Tensor& all, const RoutingOptions& options,
                          const SelectionRule& rule, const SelectionScope& scope,
                          const Cores& cores) {
  const int64_t slots = std::max(options.top_k, rule.take);
  if (all.is_meta()) return on_meta(all, options, slots);
  const Tensor logits = all.to(tensor::Device::cpu);
  const RoutingOptions router = on_host(options);
  require(static_cast<int64_t>(scope.group_of.size()) == logits.size(0) &&
              groups_in(scope) <= static_cast<int>(cores.size()),
          ErrorCode::usage, "route_inside: {} groups and {} coresets for {} tokens",
          scope.group_of.size(), cores.size(), logits.size(0));
  FirstPass pass =
      first_pass(logits, router, {}, scope.group_of, static_cast<int>(cores.size()), slots);
  choose_inside(pass.vanilla, logits, pass.score, router, rule, scope, cores);
  return beside(all, pass.vanilla);
}

}  // namespace tessera::nn

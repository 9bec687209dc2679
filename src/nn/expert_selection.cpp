#include "nn/expert_selection.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
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

bool sigmoid(const RoutingOptions& o) { return o.score == RoutingOptions::Score::sigmoid; }

int groups_in(const SelectionScope& scope) {
  int32_t last = -1;
  for (int32_t g : scope.group_of) last = std::max(last, g);
  return std::max(last + 1, scope.groups);
}

// Vanilla weights of a token's choice, before the scale, in doubles: equal logits give equal votes
// wherever they stand.
void exact_weights(const float* logits, int64_t n, const RoutingOptions& o, const int32_t* ids,
                   double* weights) {
  double sum = 0, chosen = 0, top = 0;
  auto raw = [&](double x) { return sigmoid(o) ? 1 / (1 + std::exp(-x)) : std::exp(x - top); };
  if (!sigmoid(o)) {
    top = *std::max_element(logits, logits + n);
    for (int64_t e = 0; e < n; ++e) sum += raw(logits[e]);
  } else {
    sum = 1;
  }
  for (int j = 0; j < o.top_k; ++j)
    chosen += weights[j] = ids[j] < 0 ? 0 : raw(logits[ids[j]]) / sum;
  if (!o.renormalise) return;
  for (int j = 0; j < o.top_k; ++j) weights[j] /= chosen + (sigmoid(o) ? 1e-20 : 0);
}

// ---- coresets

struct Votes {
  std::vector<int64_t> of;  // [groups, experts]
  void add(Method method, size_t at, double weight) {
    const double power = method == Method::vote_norm4 ? weight * weight * weight * weight : weight;
    const int64_t vote = std::llround(power * kFixed);
    of[at] = method == Method::vote_max ? std::max(of[at], vote) : of[at] + vote;
  }
  void merge(Method method, const Votes& other) {
    for (size_t i = 0; i < of.size(); ++i)
      of[i] = method == Method::vote_max ? std::max(of[i], other.of[i]) : of[i] + other.of[i];
  }
};

Votes count_votes(const Tensor& logits, const RoutingOptions& router, const SelectionRule& rule,
                  const ops::Routing& vanilla, std::span<const int32_t> group_of, int groups) {
  const int64_t experts = logits.size(1);
  const size_t size = static_cast<size_t>(groups) * static_cast<size_t>(experts);
  Votes total{std::vector<int64_t>(size)};
  std::mutex merging;
  tensor::parallel_for(logits.size(0), 32, [&](int64_t begin, int64_t end) {
    Votes mine{std::vector<int64_t>(size)};
    std::vector<double> weights(static_cast<size_t>(router.top_k));
    for (int64_t t = begin; t < end; ++t) {
      const int32_t group = group_of[static_cast<size_t>(t)];
      if (group < 0) continue;
      const int32_t* ids = vanilla.ids.row<int32_t>(t);
      exact_weights(logits.row<float>(t), experts, router, ids, weights.data());
      for (int j = 0; j < router.top_k; ++j)
        if (ids[j] >= 0)
          mine.add(rule.method, static_cast<size_t>(group * experts + ids[j]),
                   weights[static_cast<size_t>(j)]);
    }
    const std::lock_guard lock(merging);
    total.merge(rule.method, mine);
  });
  return total;
}

std::vector<uint8_t> most_voted(std::span<const int64_t> votes, size_t count) {
  std::vector<size_t> order(votes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return votes[a] > votes[b]; });
  std::vector<uint8_t> core(votes.size());
  for (size_t i = 0; i < count; ++i) core[order[i]] = 1;
  return core;
}

// The fewest experts, most voted first, that hold a share of the votes; all of them at 1.
size_t covering(std::span<const int64_t> votes, double share) {
  std::vector<int64_t> falling(votes.begin(), votes.end());
  std::sort(falling.begin(), falling.end(), std::greater<>());
  const auto wanted = share * double(std::accumulate(falling.begin(), falling.end(), int64_t{0}));
  size_t count = 0;
  for (double held = 0; count < falling.size() && (held < wanted || share >= 1); ++count)
    held += double(falling[count]);
  return std::max(count, size_t{1});
}

using Cores = std::vector<std::vector<uint8_t>>;

// Experts that any rank's tokens want.
void unite(Cores& cores, SelectionPeers* peers) {
  if (!peers || cores.empty()) return;
  std::vector<int64_t> flags;
  for (const auto& core : cores) flags.insert(flags.end(), core.begin(), core.end());
  peers->max(flags);
  size_t at = 0;
  for (auto& core : cores)
    for (uint8_t& flag : core) flag = static_cast<uint8_t>(flags[at++]);
}

Cores make_cores(const Tensor& logits, const RoutingOptions& router, const SelectionRule& rule,
                 const ops::Routing& vanilla, const SelectionScope& scope, int groups) {
  const std::span<const int32_t> group_of = scope.group_of;
  const auto experts = static_cast<size_t>(logits.size(1));
  Cores cores(static_cast<size_t>(groups), std::vector<uint8_t>(experts, 1));
  if (!rule.coreset()) return cores;
  if (rule.method != Method::seq) {
    Votes votes = count_votes(logits, router, rule, vanilla, group_of, groups);
    if (scope.peers && groups > 0) {
      if (rule.method == Method::vote_max)
        scope.peers->max(votes.of);
      else
        scope.peers->sum(votes.of);
    }
    const auto count = static_cast<size_t>(std::floor(rule.beta * double(experts)));
    for (size_t g = 0; g < cores.size(); ++g) {
      const auto mine = std::span(votes.of).subspan(g * experts, experts);
      cores[g] = most_voted(mine, rule.method == Method::cover ? covering(mine, rule.beta) : count);
    }
    return cores;
  }
  for (auto& core : cores) std::fill(core.begin(), core.end(), uint8_t{0});
  RoutingOptions few = router;
  few.top_k = std::min(rule.k, static_cast<int>(experts));
  const ops::Routing best = few.top_k == router.top_k ? vanilla : ops::route(logits, few);
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
      : o_(router), rule_(rule), score_(static_cast<size_t>(experts)), rank_(score_.size()) {}

  void operator()(const float* logits, const std::vector<uint8_t>& core, const int32_t* vanilla,
                  int slots, int32_t* ids, float* weights) {
    ops::router_scores(logits, o_, score_, rank_);
    const bool limited = o_.top_groups < o_.groups;
    if (limited && rule_.groups == SelectionRule::Groups::vanilla)
      ops::limit_groups(rank_, o_.groups, o_.top_groups);
    for (size_t e = 0; e < core.size(); ++e)
      if (!core[e]) rank_[e] = kClosed;
    if (limited && rule_.groups == SelectionRule::Groups::masked)
      ops::limit_groups(rank_, o_.groups, o_.top_groups);
    const int take = rule_.take ? rule_.take : o_.top_k;
    float chosen = sigmoid(o_) ? 1e-20f : 0;
    for (int j = 0; j < slots; ++j) {
      const int64_t e = j < take ? ops::best_ranked(rank_) : -1;
      ids[j] = static_cast<int32_t>(e);
      weights[j] = e < 0 ? 0 : score_[static_cast<size_t>(e)];
      chosen += weights[j];
      if (e >= 0) rank_[static_cast<size_t>(e)] = kClosed;
    }
    const float factor = factor_of(core, vanilla, chosen);
    for (int j = 0; j < slots; ++j) weights[j] = ids[j] < 0 ? 0 : weights[j] * factor;
  }

 private:
  float factor_of(const std::vector<uint8_t>& core, const int32_t* vanilla, float chosen) const {
    using Weights = SelectionRule::Weights;
    float mass = sigmoid(o_) ? 1e-20f : 0;
    for (int j = 0; j < o_.top_k; ++j)
      if (vanilla[j] >= 0) mass += score_[static_cast<size_t>(vanilla[j])];
    if (o_.renormalise) return o_.scale / (rule_.weights == Weights::b ? mass : chosen);
    if (rule_.weights == Weights::b || chosen <= 0) return o_.scale;
    if (rule_.weights == Weights::d) return o_.scale * (mass / chosen);
    if (sigmoid(o_)) return o_.scale;  // scores of a sigmoid do not know of each other
    float inside = 0;
    for (size_t e = 0; e < core.size(); ++e)
      if (core[e]) inside += score_[e];
    return o_.scale / inside;
  }

  const RoutingOptions& o_;
  const SelectionRule& rule_;
  std::vector<float> score_, rank_;
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

// The vanilla routing with more slots, empty ones behind.
ops::Routing widened(const ops::Routing& narrow, int64_t slots) {
  const int64_t tokens = narrow.ids.size(0), k = narrow.ids.size(1);
  if (k == slots) return narrow;
  ops::Routing wide{Tensor::empty({tokens, slots}, tensor::DType::i32, narrow.ids.device()),
                    Tensor::zeros({tokens, slots}, tensor::DType::f32, narrow.ids.device())};
  if (wide.ids.is_meta()) return wide;
  std::fill_n(wide.ids.data<int32_t>(), wide.ids.elements(), -1);
  for (int64_t t = 0; t < tokens; ++t) {
    std::copy_n(narrow.ids.row<int32_t>(t), k, wide.ids.row<int32_t>(t));
    std::copy_n(narrow.weights.row<float>(t), k, wide.weights.row<float>(t));
  }
  return wide;
}

// Overwrites the vanilla routing of tokens whose coreset is not all experts.
void choose_inside(ops::Routing& routing, const Tensor& logits, const RoutingOptions& router,
                   const SelectionRule& rule, const SelectionScope& scope, const Cores& cores) {
  const auto slots = static_cast<int>(routing.ids.size(1));
  const bool as_model =
      rule.method != Method::topk && (rule.take == 0 || rule.take == router.top_k) &&
      (rule.groups != SelectionRule::Groups::none || router.groups == router.top_groups);
  std::vector<bool> full;
  for (const auto& core : cores)
    full.push_back(as_model && std::find(core.begin(), core.end(), 0) == core.end());
  tensor::parallel_for(logits.size(0), 32, [&](int64_t begin, int64_t end) {
    CoreChooser choose(router, rule, logits.size(1));
    std::vector<int32_t> vanilla(static_cast<size_t>(slots));
    for (int64_t t = begin; t < end; ++t) {
      const int32_t group = scope.group_of[static_cast<size_t>(t)];
      if (group < 0 || full[static_cast<size_t>(group)]) continue;
      int32_t* ids = routing.ids.row<int32_t>(t);
      std::copy_n(ids, slots, vanilla.data());
      choose(logits.row<float>(t), cores[static_cast<size_t>(group)], vanilla.data(), slots, ids,
             routing.weights.row<float>(t));
    }
  });
}

}  // namespace

void check_selection(const SelectionRule& rule, int experts, int top_k) {
  require(rule.k <= experts && rule.take <= experts, ErrorCode::usage,
          "expert selection '{}' asks for {} experts of a token; the model has {}", to_string(rule),
          std::max(rule.k, rule.take), experts);
  if (!rule.coreset() || rule.method == Method::seq) return;
  if (rule.method == Method::cover) {
    require(rule.beta > 0, ErrorCode::usage,
            "expert selection '{}' leaves no expert; choose a share above 0", to_string(rule));
    return;
  }
  require(
      std::floor(rule.beta * double(experts)) >= 1, ErrorCode::usage,
      "expert selection '{}' leaves no expert: {} of {} is less than one; choose beta >= {:.4f} "
      "({} experts a token are vanilla)",
      to_string(rule), rule.beta, experts, 1.0 / double(experts), top_k);
}

ops::Routing select_experts(const Tensor& logits, const RoutingOptions& router,
                            const SelectionRule& rule, const SelectionScope& scope,
                            std::vector<std::vector<uint8_t>>* cores) {
  const int taken = rule.method == Method::topk ? rule.k : rule.take ? rule.take : router.top_k;
  const int64_t slots = std::max(router.top_k, taken);
  ops::Routing routing = widened(ops::route(logits, router), slots);
  if (logits.is_meta()) return routing;
  require(static_cast<int64_t>(scope.group_of.size()) == logits.size(0), ErrorCode::usage,
          "select_experts: {} groups for {} tokens", scope.group_of.size(), logits.size(0));
  check_selection(rule, static_cast<int>(logits.size(1)), router.top_k);
  const int groups = groups_in(scope);
  const Cores made = make_cores(logits, router, rule, routing, scope, groups);
  if (cores) *cores = made;
  if (rule.method == Method::naee || rule.method == Method::mc) {
    apply_tail(routing, router, rule, scope, groups);
    return routing;
  }
  if (rule.method == Method::vanilla) return routing;
  if (rule.method != Method::topk) {
    choose_inside(routing, logits, router, rule, scope, made);
    return routing;
  }
  RoutingOptions model = router;  // the model's own router with another k
  model.top_k = rule.k;
  SelectionRule inside{.method = Method::topk, .weights = SelectionRule::Weights::b};
  if (model.renormalise) inside.weights = SelectionRule::Weights::a;
  choose_inside(routing, logits, model, inside, scope, made);
  return routing;
}

ops::Routing route_inside(const Tensor& logits, const RoutingOptions& router,
                          const SelectionRule& rule, const SelectionScope& scope,
                          const Cores& cores) {
  const int64_t slots = std::max(router.top_k, rule.take);
  ops::Routing routing = widened(ops::route(logits, router), slots);
  if (logits.is_meta()) return routing;
  require(static_cast<int64_t>(scope.group_of.size()) == logits.size(0) &&
              groups_in(scope) <= static_cast<int>(cores.size()),
          ErrorCode::usage, "route_inside: {} groups and {} coresets for {} tokens",
          scope.group_of.size(), cores.size(), logits.size(0));
  choose_inside(routing, logits, router, rule, scope, cores);
  return routing;
}

}  // namespace tessera::nn

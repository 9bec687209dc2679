#include "kernels/selection.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <vector>

#include "tensor/scope.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kGrain = 64;
constexpr double kHalf = 0.5;  // rounds nonnegative values without a call
constexpr float kClosed = -std::numeric_limits<float>::infinity();

class Votes {
 public:
  explicit Votes(const VotesArgs& args)
      : args_(args), votes_(static_cast<size_t>(args.groups * args.router.experts)) {}

  // In doubles, so that equal logits give equal votes at any position.
  void add(const TokenScores& scores, const int32_t* ids, int32_t group) {
    const RouteArgs& o = args_.router;
    double mass = 1;
    if (o.renormalise) {
      mass = o.sigmoid ? 1e-20 : 0;
      for (int j = 0; j < o.top_k; ++j)
        if (ids[j] >= 0) mass += scores.exact[static_cast<size_t>(ids[j])];
    }
    for (int j = 0; j < o.top_k; ++j)
      if (ids[j] >= 0)
        put(static_cast<size_t>(group * o.experts + ids[j]),
            vote(scores.exact[static_cast<size_t>(ids[j])] / mass *
                 double(expert_scale(o, ids[j]))));
  }
  void add_ranks(std::span<const float> ranks, int32_t group) {
    for (size_t e = 0; e < ranks.size(); ++e)
      put(static_cast<size_t>(group) * ranks.size() + e, vote_of_rank(ranks[e]));
  }
  void into(int64_t* all) const {
    for (size_t i = 0; i < votes_.size(); ++i)
      all[i] = args_.maximum ? std::max(all[i], votes_[i]) : all[i] + votes_[i];
  }

 private:
  int64_t vote(double weight) const {
    if (args_.of == VoteOf::presence) return 1;
    const double power = args_.of == VoteOf::weight ? weight : weight * weight * weight * weight;
    return static_cast<int64_t>(power * kVoteUnit + kHalf);
  }
  void put(size_t at, int64_t vote) {
    votes_[at] = args_.maximum ? std::max(votes_[at], vote) : votes_[at] + vote;
  }
  const VotesArgs& args_;
  std::vector<int64_t> votes_;
};

/// Chooses experts for a token inside a coreset.
class Chooser {
 public:
  Chooser(const InsideArgs& args, const RoutingSteps& steps)
      : args_(args),
        steps_(steps),
        choice_(static_cast<size_t>(args.router.experts)),
        closed_(choice_.size()) {}

  void operator()(int64_t token) {
    const RouteArgs& o = args_.router;
    const int32_t* vanilla = o.ids + token * o.top_k;
    int32_t* ids = args_.ids + token * args_.slots;
    float* weights = args_.weights + token * args_.slots;
    const int32_t group = args_.group_of[token];
    const bool full = group < 0 || open(group);
    if (full && (group < 0 || args_.rule.full_is_free)) {
      std::copy_n(vanilla, o.top_k, ids);
      std::copy_n(o.weights + token * o.top_k, o.top_k, weights);
      std::fill(ids + o.top_k, ids + args_.slots, -1);
      std::fill(weights + o.top_k, weights + args_.slots, 0.0f);
      return;
    }
    const float* score = o.scores + token * o.experts;
    choose(o.logits + token * o.experts, score, ids);
    std::fill(ids + args_.rule.take, ids + args_.slots, -1);
    float chosen_mass = o.sigmoid ? 1e-20f : 0;
    for (int j = 0; j < args_.slots; ++j) {
      weights[j] = ids[j] < 0 ? 0 : score[ids[j]];
      chosen_mass += weights[j];
    }
    const float factor = factor_of(score, vanilla, chosen_mass);
    for (int j = 0; j < args_.slots; ++j)
      weights[j] = ids[j] < 0 ? 0 : weights[j] * factor * expert_scale(o, ids[j]);
  }

 private:
  // True if the coreset of a group is all experts; closed_: 0 inside the coreset, -inf outside.
  bool open(int32_t group) {
    if (group == group_) return full_;
    group_ = group;
    full_ = true;
    for (size_t e = 0; e < closed_.size(); ++e) {
      const bool in = !args_.cores || args_.cores[group * args_.router.experts + int64_t(e)];
      closed_[e] = in ? 0 : kClosed;
      full_ &= in;
    }
    return full_;
  }

  void choose(const float* logits, const float* score, int32_t* ids) {
    using Groups = InsideRule::Groups;
    const RouteArgs& o = args_.router;
    const bool limited = o.top_groups < o.groups && args_.rule.groups != Groups::none;
    if (!o.sigmoid && !limited)
      return steps_.top_k({logits, closed_.data(), o.experts, args_.rule.take, ids});
    choice_scores(o, logits, score, choice_);
    if (limited && args_.rule.groups == Groups::vanilla)
      limit_groups(choice_, o.groups, o.top_groups, steps_);
    for (size_t e = 0; e < choice_.size(); ++e) choice_[e] += closed_[e];
    if (limited && args_.rule.groups == Groups::masked)
      limit_groups(choice_, o.groups, o.top_groups, steps_);
    steps_.top_k({choice_.data(), nullptr, o.experts, args_.rule.take, ids});
  }

  float factor_of(const float* score, const int32_t* vanilla, float chosen_mass) const {
    using Weights = InsideRule::Weights;
    const RouteArgs& o = args_.router;
    const Weights weights = args_.rule.weights;
    float mass = o.sigmoid ? 1e-20f : 0;
    for (int j = 0; j < o.top_k; ++j)
      if (vanilla[j] >= 0) mass += score[vanilla[j]];
    if (o.renormalise) return o.scale / (weights == Weights::vanilla ? mass : chosen_mass);
    if (weights == Weights::vanilla || chosen_mass <= 0) return o.scale;
    if (weights == Weights::mass) return o.scale * (mass / chosen_mass);
    if (o.sigmoid) return o.scale;  // sigmoid scores are independent
    float inside = 0;
    for (size_t e = 0; e < closed_.size(); ++e)
      if (closed_[e] == 0) inside += score[e];
    return o.scale / inside;
  }

  const InsideArgs& args_;
  const RoutingSteps& steps_;
  std::vector<float> choice_, closed_;
  int32_t group_ = -1;
  bool full_ = true;
};

}  // namespace

void expert_votes(const VotesArgs& args, const RoutingSteps& steps) {
  const RouteArgs& o = args.router;
  if (args.route.logits) route_tokens(args.route, steps);
  std::fill_n(args.votes, args.groups * o.experts, int64_t{0});
  std::mutex merging;
  tensor::parallel_for(o.tokens, kGrain, [&](int64_t begin, int64_t end) {
    TokenScores scores(o.experts);
    Votes own_votes(args);
    for (int64_t t = begin; t < end; ++t) {
      if (args.group_of[t] < 0) continue;
      if (args.of != VoteOf::presence)
        steps.router_scores({o.logits + t * o.experts, o.experts, o.sigmoid, scores.exact.data(),
                             scores.score.data()});
      if (args.of == VoteOf::rank) {
        choice_scores(o, o.logits + t * o.experts, scores.score.data(), scores.choice);
        own_votes.add_ranks(scores.choice, args.group_of[t]);
        continue;
      }
      own_votes.add(scores, o.ids + t * o.top_k, args.group_of[t]);
    }
    const std::lock_guard lock(merging);
    own_votes.into(args.votes);
  });
}

void choose_inside(const InsideArgs& args, const RoutingSteps& steps) {
  if (const Ballot& of = args.ballot; of.votes) {
    const int64_t experts = args.router.experts;
    std::vector<uint8_t> cores(static_cast<size_t>(of.groups * experts));
    reference::coresets({of.votes, of.groups, experts, of.count, of.bar, cores.data()});
    InsideArgs inside = args;
    inside.ballot = {};
    inside.cores = cores.data();
    return choose_inside(inside, steps);
  }
  tensor::parallel_for(args.router.tokens, kGrain, [&](int64_t begin, int64_t end) {
    Chooser choose(args, steps);
    for (int64_t t = begin; t < end; ++t) choose(t);
  });
}

}  // namespace tessera::kernels

#include "kernels/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace tessera::kernels::reference {
namespace {

constexpr float kClosed = -std::numeric_limits<float>::infinity();

// Ranks outside the best groups become -inf; a group is worth the sum of its up to two best.
void close_groups(const RouteArgs& args, std::vector<float>& rank) {
  const size_t size = rank.size() / static_cast<size_t>(args.groups);
  std::vector<float> worth(static_cast<size_t>(args.groups));
  for (size_t g = 0; g < worth.size(); ++g) {
    float first = kClosed, second = kClosed;
    for (size_t i = g * size; i < (g + 1) * size; ++i) {
      second = std::max(second, std::min(first, rank[i]));
      first = std::max(first, rank[i]);
    }
    worth[g] = second > kClosed ? first + second : first;
  }
  std::vector<int32_t> best(static_cast<size_t>(args.top_groups));
  top_k({worth.data(), nullptr, args.groups, args.top_groups, best.data()});
  for (size_t i = 0; i < rank.size(); ++i)
    if (std::find(best.begin(), best.end(), static_cast<int32_t>(i / size)) == best.end())
      rank[i] = kClosed;
}

}  // namespace

void route(const RouteArgs& args) {
  const auto experts = static_cast<size_t>(args.experts);
  std::vector<double> exact(experts);
  std::vector<float> score(experts), rank(experts);
  for (int64_t t = 0; t < args.tokens; ++t) {
    const float* logits = args.logits + t * args.experts;
    router_scores({logits, args.experts, args.sigmoid, exact.data(), score.data()});
    if (args.scores) std::copy(score.begin(), score.end(), args.scores + t * args.experts);
    for (size_t e = 0; e < experts; ++e) {
      rank[e] = args.sigmoid ? score[e] : logits[e];
      if (args.bias) rank[e] += args.bias[e];
    }
    if (args.top_groups < args.groups) close_groups(args, rank);
    int32_t* ids = args.ids + t * args.top_k;
    float* weights = args.weights + t * args.top_k;
    top_k({rank.data(), nullptr, args.experts, args.top_k, ids});
    float sum = args.sigmoid ? 1e-20f : 0;
    for (int j = 0; j < args.top_k; ++j) {
      weights[j] = ids[j] < 0 ? 0 : score[static_cast<size_t>(ids[j])];
      sum += weights[j];
    }
    const float scale = args.renormalise ? args.scale / sum : args.scale;
    for (int j = 0; j < args.top_k; ++j) weights[j] = ids[j] < 0 ? 0 : weights[j] * scale;
  }
}

void router_scores(const RouterScoresArgs& args) {
  const float* x = args.logits;
  double sum = 0;
  const double top =
      args.sigmoid || args.experts == 0 ? 0 : double{*std::max_element(x, x + args.experts)};
  for (int64_t e = 0; e < args.experts; ++e) {
    args.exact[e] = args.sigmoid ? 1 / (1 + std::exp(-double{x[e]})) : std::exp(x[e] - top);
    sum += args.exact[e];
  }
  for (int64_t e = 0; e < args.experts; ++e) {
    if (!args.sigmoid) args.exact[e] /= sum;
    args.score[e] = static_cast<float>(args.exact[e]);
  }
}

void top_k(const TopKArgs& args) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  std::vector<float> rank(args.rank, args.rank + args.n);
  if (args.closed)
    for (size_t i = 0; i < rank.size(); ++i) rank[i] += args.closed[i];
  for (int j = 0; j < args.k; ++j) {
    int32_t best = -1;
    float value = kNone;
    for (size_t i = 0; i < rank.size(); ++i)
      if (rank[i] > value) {
        value = rank[i];
        best = static_cast<int32_t>(i);
      }
    args.ids[j] = best;
    if (best >= 0) rank[static_cast<size_t>(best)] = kNone;
  }
}

}  // namespace tessera::kernels::reference

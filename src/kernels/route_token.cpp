#include "kernels/route_token.h"

#include <algorithm>
#include <limits>

#include "tensor/scope.h"

namespace tessera::kernels {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

}  // namespace

void choice_scores(const RouteArgs& args, const float* logits, const float* score,
                   std::span<float> choice) {
  std::copy_n(args.sigmoid ? score : logits, choice.size(), choice.begin());
  if (!args.bias) return;
  for (size_t e = 0; e < choice.size(); ++e) choice[e] += args.bias[e];
}

void limit_groups(std::span<float> choice, int groups, int top_groups, const RoutingSteps& steps) {
  const size_t size = choice.size() / static_cast<size_t>(groups);
  std::vector<float> worth(static_cast<size_t>(groups));
  for (size_t g = 0; g < worth.size(); ++g) {
    float first = kLowest, second = kLowest;
    for (size_t i = g * size; i < (g + 1) * size; ++i) {
      if (choice[i] > first) {
        second = first;
        first = choice[i];
      } else if (choice[i] > second) {
        second = choice[i];
      }
    }
    worth[g] = second > kLowest ? first + second : first;
  }
  std::vector<int32_t> best(static_cast<size_t>(top_groups));
  steps.top_k({worth.data(), nullptr, groups, top_groups, best.data()});
  std::vector<bool> open(worth.size());
  for (const int32_t g : best)
    if (g >= 0) open[static_cast<size_t>(g)] = true;
  for (size_t i = 0; i < choice.size(); ++i)
    if (!open[i / size]) choice[i] = kLowest;
}

void route_token(const RouteArgs& args, int64_t token, const RoutingSteps& steps,
                 TokenScores& scores) {
  const float* logits = args.logits + token * args.experts;
  int32_t* ids = args.ids + token * args.top_k;
  float* weights = args.weights + token * args.top_k;
  steps.router_scores(
      {logits, args.experts, args.sigmoid, scores.exact.data(), scores.score.data()});
  if (args.scores) std::ranges::copy(scores.score, args.scores + token * args.experts);
  const float* choice = logits;
  if (args.sigmoid || args.top_groups < args.groups) {
    choice_scores(args, logits, scores.score.data(), scores.choice);
    if (args.top_groups < args.groups)
      limit_groups(scores.choice, args.groups, args.top_groups, steps);
    choice = scores.choice.data();
  }
  steps.top_k({choice, nullptr, args.experts, args.top_k, ids});
  float sum = args.sigmoid ? 1e-20f : 0;
  for (int j = 0; j < args.top_k; ++j) {
    weights[j] = ids[j] < 0 ? 0 : scores.score[static_cast<size_t>(ids[j])];
    sum += weights[j];
  }
  const float scale = args.renormalise ? args.scale / sum : args.scale;
  for (int j = 0; j < args.top_k; ++j)
    weights[j] = ids[j] < 0 ? 0 : weights[j] * scale * expert_scale(args, ids[j]);
}

void route_tokens(const RouteArgs& args, const RoutingSteps& steps) {
  tensor::parallel_for(args.tokens, 64, [&](int64_t begin, int64_t end) {
    TokenScores scores(args.experts);
    for (int64_t t = begin; t < end; ++t) route_token(args, t, steps, scores);
  });
}

}  // namespace tessera::kernels

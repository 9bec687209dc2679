#include "ops/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/fail.h"
#include "tensor/scope.h"
#include "tensor/shape_format.h"

namespace tessera::ops {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

void check_route(const Tensor& logits, const RoutingOptions& o) {
  require(logits.rank() == 2 && logits.dtype() == DType::f32, ErrorCode::usage,
          "route: logits {} of {}; expected f32 [tokens, experts]", logits.shape(),
          tensor::name_of(logits.dtype()));
  const int64_t experts = logits.size(1);
  require(o.top_k >= 1 && o.top_k <= experts, ErrorCode::usage,
          "route: top_k {} of {} experts; choose 1 to {}", o.top_k, experts, experts);
  require(o.groups >= 1 && experts % o.groups == 0 && o.top_groups >= 1 && o.top_groups <= o.groups,
          ErrorCode::usage,
          "route: {} of {} groups over {} experts; groups must divide the experts", o.top_groups,
          o.groups, experts);
  if (!o.bias.defined()) return;
  require(o.score == RoutingOptions::Score::sigmoid, ErrorCode::usage,
          "route: a ranking bias goes with sigmoid scores only; leave it out");
  require(o.bias.rank() == 1 && o.bias.size(0) == experts && o.bias.dtype() == DType::f32,
          ErrorCode::usage, "route: bias {}; expected f32 [{}]", o.bias.shape(), experts);
}

void softmax(const float* logits, int64_t n, float* score) {
  const float largest = *std::max_element(logits, logits + n);
  float sum = 0;
  for (int64_t e = 0; e < n; ++e) sum += score[e] = std::exp(logits[e] - largest);
  for (int64_t e = 0; e < n; ++e) score[e] /= sum;
}

void route_token(const float* logits, const RoutingOptions& o, std::span<float> score,
                 std::span<float> rank, int32_t* ids, float* weights) {
  router_scores(logits, o, score, rank);
  if (o.top_groups < o.groups) limit_groups(rank, o.groups, o.top_groups);
  float sum = o.score == RoutingOptions::Score::sigmoid ? 1e-20f : 0;
  for (int j = 0; j < o.top_k; ++j) {
    const int64_t e = best_ranked(rank);
    ids[j] = static_cast<int32_t>(e);
    weights[j] = e < 0 ? 0 : score[static_cast<size_t>(e)];
    sum += weights[j];
    if (e >= 0) rank[static_cast<size_t>(e)] = kLowest;
  }
  const float scale = o.renormalise ? o.scale / sum : o.scale;
  for (int j = 0; j < o.top_k; ++j) weights[j] = ids[j] < 0 ? 0 : weights[j] * scale;
}

}  // namespace

void router_scores(const float* logits, const RoutingOptions& o, std::span<float> score,
                   std::span<float> rank) {
  const size_t n = score.size();
  if (o.score == RoutingOptions::Score::softmax) {
    softmax(logits, static_cast<int64_t>(n), score.data());
    std::copy_n(logits, n, rank.begin());
    return;
  }
  for (size_t e = 0; e < n; ++e) rank[e] = score[e] = 1 / (1 + std::exp(-logits[e]));
  if (o.bias.defined())
    for (size_t e = 0; e < n; ++e) rank[e] += o.bias.data<float>()[e];
}

int64_t best_ranked(std::span<const float> rank) {
  int64_t best = -1;
  float value = kLowest;
  for (size_t i = 0; i < rank.size(); ++i)
    if (rank[i] > value) {
      value = rank[i];
      best = static_cast<int64_t>(i);
    }
  return best;
}

void limit_groups(std::span<float> rank, int groups, int top_groups) {
  const size_t size = rank.size() / static_cast<size_t>(groups);
  std::vector<float> worth(static_cast<size_t>(groups));
  for (size_t g = 0; g < worth.size(); ++g) {
    float first = kLowest, second = kLowest;
    for (size_t i = g * size; i < (g + 1) * size; ++i) {
      if (rank[i] > first) {
        second = first;
        first = rank[i];
      } else if (rank[i] > second) {
        second = rank[i];
      }
    }
    worth[g] = second > kLowest ? first + second : first;
  }
  std::vector<bool> open(worth.size());
  for (int i = 0; i < top_groups; ++i) {
    const int64_t g = best_ranked(worth);
    if (g < 0) break;
    open[static_cast<size_t>(g)] = true;
    worth[static_cast<size_t>(g)] = kLowest;
  }
  for (size_t i = 0; i < rank.size(); ++i)
    if (!open[i / size]) rank[i] = kLowest;
}

Routing route(const Tensor& logits, const RoutingOptions& options) {
  check_route(logits, options);
  const int64_t tokens = logits.size(0), experts = logits.size(1), k = options.top_k;
  Routing routing{Tensor::empty({tokens, k}, DType::i32, logits.device()),
                  Tensor::empty({tokens, k}, DType::f32, logits.device())};
  if (tensor::Meter* meter = tensor::current_scope().meter.get())
    meter->add("route", 4 * static_cast<double>(logits.elements()),
               static_cast<double>(logits.bytes() + tokens * k * 8));
  if (logits.is_meta()) return routing;
  tensor::parallel_for(tokens, 64, [&](int64_t begin, int64_t end) {
    const auto size = static_cast<size_t>(experts);
    std::vector<float> score(size), rank(size);
    for (int64_t t = begin; t < end; ++t)
      route_token(logits.row<float>(t), options, score, rank, routing.ids.row<int32_t>(t),
                  routing.weights.row<float>(t));
  });
  return routing;
}

}  // namespace tessera::ops

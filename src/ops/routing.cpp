#include "ops/routing.h"

#include <algorithm>
#include <limits>

#include "base/fail.h"
#include "kernels/routing.h"
#include "kernels/table.h"
#include "tensor/scope.h"
#include "tensor/shape_format.h"

namespace tessera::ops {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

}  // namespace

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

void route_token(const float* logits, const RoutingOptions& o, TokenScores& scores, int32_t* ids,
                 float* weights) {
  const bool sigmoid = o.score == RoutingOptions::Score::sigmoid;
  const kernels::KernelTable& table = kernels::cpu_table();
  const auto n = static_cast<int64_t>(scores.score.size());
  table.router_scores({logits, n, sigmoid, scores.exact.data(), scores.score.data()});
  const float* rank = logits;
  if (sigmoid || o.top_groups < o.groups) {
    router_ranks(logits, scores.score.data(), o, scores.rank);
    if (o.top_groups < o.groups) limit_groups(scores.rank, o.groups, o.top_groups);
    rank = scores.rank.data();
  }
  table.top_k({rank, nullptr, n, o.top_k, ids});
  float sum = sigmoid ? 1e-20f : 0;
  for (int j = 0; j < o.top_k; ++j) {
    weights[j] = ids[j] < 0 ? 0 : scores.score[static_cast<size_t>(ids[j])];
    sum += weights[j];
  }
  const float scale = o.renormalise ? o.scale / sum : o.scale;
  for (int j = 0; j < o.top_k; ++j) weights[j] = ids[j] < 0 ? 0 : weights[j] * scale;
}

void router_ranks(const float* logits, const float* score, const RoutingOptions& o,
                  std::span<float> rank) {
  const bool sigmoid = o.score == RoutingOptions::Score::sigmoid;
  std::copy_n(sigmoid ? score : logits, rank.size(), rank.begin());
  if (!o.bias.defined()) return;
  for (size_t e = 0; e < rank.size(); ++e) rank[e] += o.bias.data<float>()[e];
}

void best_k(std::span<const float> rank, const float* closed, int k, int32_t* ids) {
  kernels::cpu_table().top_k({rank.data(), closed, static_cast<int64_t>(rank.size()), k, ids});
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
  std::vector<int32_t> best(static_cast<size_t>(top_groups));
  best_k(worth, nullptr, top_groups, best.data());
  std::vector<bool> open(worth.size());
  for (const int32_t g : best)
    if (g >= 0) open[static_cast<size_t>(g)] = true;
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
  if (logits.device() != tensor::Device::cpu) {
    if (const auto kernel = kernels::table_of(logits.device()).route) {
      const Tensor all = logits.contiguous();
      const Tensor bias = options.bias.defined() ? options.bias.to(logits.device()) : Tensor{};
      kernel({.logits = all.data<float>(),
              .tokens = tokens,
              .experts = experts,
              .sigmoid = options.score == RoutingOptions::Score::sigmoid,
              .bias = bias.defined() ? bias.data<float>() : nullptr,
              .groups = options.groups,
              .top_groups = options.top_groups,
              .top_k = options.top_k,
              .renormalise = options.renormalise,
              .scale = options.scale,
              .ids = routing.ids.data<int32_t>(),
              .weights = routing.weights.data<float>()});
      return routing;
    }
    RoutingOptions here = options;
    if (here.bias.defined()) here.bias = here.bias.to(tensor::Device::cpu);
    const Routing made = route(logits.to(tensor::Device::cpu), here);
    return {made.ids.to(logits.device()), made.weights.to(logits.device())};
  }
  tensor::parallel_for(tokens, 64, [&](int64_t begin, int64_t end) {
    TokenScores scores(experts);
    for (int64_t t = begin; t < end; ++t)
      route_token(logits.row<float>(t), options, scores, routing.ids.row<int32_t>(t),
                  routing.weights.row<float>(t));
  });
  return routing;
}

}  // namespace tessera::ops

#include "ops/routing.h"

#include "base/fail.h"
#include "kernels/routing.h"
#include "kernels/table.h"
#include "ops/upload.h"
#include "tensor/scope.h"
#include "tensor/shape_format.h"

namespace tessera::ops {
namespace {

using kernels::RouteArgs;

// The rule alone: bias where it is, no tokens yet.
RouteArgs args_of(const RoutingOptions& o) {
  RouteArgs args;
  args.sigmoid = o.score == RoutingOptions::Score::sigmoid;
  args.bias = o.bias.defined() ? o.bias.data<float>() : nullptr;
  args.groups = o.groups, args.top_groups = o.top_groups, args.top_k = o.top_k;
  args.renormalise = o.renormalise, args.scale = o.scale;
  return args;
}

kernels::RoutingSteps steps() {
  const kernels::KernelTable& table = kernels::cpu_table();
  return {table.router_scores, table.top_k};
}

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
  RouteArgs args = args_of(o);
  args.logits = logits, args.ids = ids, args.weights = weights;
  args.tokens = 1, args.experts = static_cast<int64_t>(scores.score.size());
  kernels::route_token(args, 0, steps(), scores);
}

void router_ranks(const float* logits, const float* score, const RoutingOptions& o,
                  std::span<float> rank) {
  kernels::router_ranks(args_of(o), logits, score, rank);
}

void best_k(std::span<const float> rank, const float* closed, int k, int32_t* ids) {
  steps().top_k({rank.data(), closed, static_cast<int64_t>(rank.size()), k, ids});
}

void limit_groups(std::span<float> rank, int groups, int top_groups) {
  kernels::limit_groups(rank, groups, top_groups, steps());
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
  if (tokens == 0) return routing;
  require_beside("route", "the bias", options.bias, logits.device());
  const Tensor all = logits.contiguous();
  RouteArgs args = args_of(options);
  args.logits = all.data<float>(), args.tokens = tokens, args.experts = experts;
  args.ids = routing.ids.data<int32_t>(), args.weights = routing.weights.data<float>();
  kernels::table_of(logits.device()).route(args);
  return routing;
}

}  // namespace tessera::ops

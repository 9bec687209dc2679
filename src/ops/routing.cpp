#include "ops/routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "kernels/routing.h"
#include "kernels/table.h"
#include "ops/planned_route.h"
#include "ops/upload.h"
#include "tensor/run_watcher.h"
#include "tensor/scope.h"
#include "tensor/shape_format.h"

namespace tessera::ops {
kernels::RouteArgs route_args(const Tensor& logits, const RoutingOptions& o) {
  kernels::RouteArgs args;
  args.logits = logits.data<float>(), args.tokens = logits.size(0), args.experts = logits.size(1);
  args.sigmoid = o.score == RoutingOptions::Score::sigmoid;
  args.bias = o.bias.defined() ? o.bias.data<float>() : nullptr;
  args.groups = o.groups, args.top_groups = o.top_groups, args.top_k = o.top_k;
  args.renormalise = o.renormalise, args.scale = o.scale;
  args.expert_scale = o.expert_scale.defined() ? o.expert_scale.data<float>() : nullptr;
  return args;
}

namespace {

// Cumulative share of tokens, expert by expert.
std::vector<double> assumed_ends(int64_t experts) {
  const tensor::Assumptions& assumptions = tensor::current_scope().assumptions;
  std::vector<double> ends = assumptions.expert_load;
  if (ends.empty())
    ends.assign(
        static_cast<size_t>(std::clamp(std::ceil(assumptions.touched_experts * double(experts)),
                                       1.0, double(experts))),
        1.0);
  require(static_cast<int64_t>(ends.size()) <= experts, ErrorCode::usage,
          "a load of {} experts is assumed; the layer has {}", ends.size(), experts);
  std::partial_sum(ends.begin(), ends.end(), ends.begin());
  const double sum = ends.back();
  for (double& end : ends) end /= sum;
  return ends;
}

// The first loaded expert from `from` on that the token does not have yet; else `from`.
int32_t not_yet(std::span<const int32_t> chosen_ids, int64_t from,
                const std::vector<double>& ends) {
  const auto count = static_cast<int64_t>(ends.size());
  for (int64_t i = 0; i < count; ++i) {
    const auto e = static_cast<size_t>((from + i) % count);
    const bool loaded = ends[e] > (e == 0 ? 0.0 : ends[e - 1]);
    if (loaded && std::find(chosen_ids.begin(), chosen_ids.end(), int32_t(e)) == chosen_ids.end())
      return static_cast<int32_t>(e);
  }
  return static_cast<int32_t>(from);
}

}  // namespace

Routing host_routing(Routing routing, int64_t experts) {
  if (!routing.ids.is_meta()) {
    const std::vector<Tensor> here = tensor::to_host({routing.ids, routing.weights});
    return {here[0], here[1]};
  }
  const int64_t tokens = routing.ids.size(0), slots = routing.ids.size(1);
  routing = {Tensor::empty(routing.ids.shape(), DType::i32),
             Tensor::zeros(routing.weights.shape(), DType::f32)};
  const std::vector<double> ends = assumed_ends(experts);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t j = 0; j < slots; ++j) {
      // Every slot covers all experts, with a token's slots far apart.
      const double place = double((t + j * tokens / slots) % tokens) + 0.5;
      const auto expert = std::upper_bound(ends.begin(), ends.end() - 1, place / double(tokens));
      int32_t* const ids = routing.ids.row<int32_t>(t);
      ids[j] = not_yet({ids, ids + j}, expert - ends.begin(), ends);
    }
  return routing;
}

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
  if (o.expert_scale.defined())
    require(o.expert_scale.rank() == 1 && o.expert_scale.size(0) == experts &&
                o.expert_scale.dtype() == DType::f32,
            ErrorCode::usage, "route: expert_scale {}; expected f32 [{}]", o.expert_scale.shape(),
            experts);
  if (!o.bias.defined()) return;
  require(o.score == RoutingOptions::Score::sigmoid, ErrorCode::usage,
          "route: a ranking bias goes with sigmoid scores only; leave it out");
  require(o.bias.rank() == 1 && o.bias.size(0) == experts && o.bias.dtype() == DType::f32,
          ErrorCode::usage, "route: bias {}; expected f32 [{}]", o.bias.shape(), experts);
}

PlannedRoute plan_route(const Tensor& logits, const RoutingOptions& options, Tensor* scores) {
  check_route(logits, options);
  const int64_t tokens = logits.size(0), k = options.top_k;
  PlannedRoute plan{{Tensor::empty({tokens, k}, DType::i32, logits.device()),
                     Tensor::empty({tokens, k}, DType::f32, logits.device())},
                    {}};
  tensor::count_op("route", 4 * static_cast<double>(logits.elements()),
                   static_cast<double>(logits.bytes() + tokens * k * 8), tensor::op_size(logits));
  if (scores) *scores = Tensor::empty(logits.shape(), DType::f32, logits.device());
  if (logits.is_meta() || tokens == 0) return plan;
  require_beside("route", "the bias", options.bias, logits.device());
  require_beside("route", "expert_scale", options.expert_scale, logits.device());
  kernels::RouteArgs& args = plan.args = route_args(logits, options);
  args.ids = plan.routing.ids.data<int32_t>();
  args.weights = plan.routing.weights.data<float>();
  if (scores) args.scores = scores->data<float>();
  return plan;
}

Routing route(const Tensor& logits, const RoutingOptions& options, Tensor* scores) {
  const Tensor dense = logits.is_meta() ? logits : logits.contiguous();
  PlannedRoute plan = plan_route(dense, options, scores);
  if (plan.args.logits) kernels::table_of(logits.device()).route(plan.args);
  return std::move(plan.routing);
}

}  // namespace tessera::ops

#include "ops/selection.h"

#include <utility>

#include "base/fail.h"
#include "kernels/table.h"
#include "ops/planned_route.h"
#include "ops/upload.h"
#include "tensor/run_watcher.h"
#include "tensor/shape_format.h"

namespace tessera::ops {
namespace {

void check_groups(const char* op, const TokenGroups& groups, int64_t tokens) {
  require(static_cast<int64_t>(groups.of.size()) == tokens, ErrorCode::usage,
          "{}: {} groups for {} tokens", op, groups.of.size(), tokens);
  for (const int32_t group : groups.of)
    require(group < groups.count, ErrorCode::usage, "{}: group {} of {}", op, group, groups.count);
}

void check_table(const char* op, const Tensor& x, DType dtype, const Tensor& beside,
                 const tensor::Shape& shape) {
  require(x.shape() == shape && x.dtype() == dtype && x.dense(), ErrorCode::usage,
          "{}: {} of {}; expected dense {} {}", op, x.shape(), tensor::name_of(x.dtype()),
          tensor::name_of(dtype), shape);
  require_beside(op, "an operand", x, beside.device());
}

Tensor table_of_votes(const Tensor& logits, const TokenGroups& groups) {
  return Tensor::empty({groups.count, logits.size(1)}, DType::i64, logits.device());
}

void vote(kernels::VotesArgs args, const TokenGroups& groups, const Tensor& votes) {
  check_groups("expert_votes", groups, args.router.tokens);
  const Uploaded<int32_t> group_of(groups.of, votes.device());
  args.group_of = group_of.data(), args.groups = groups.count;
  args.votes = votes.data<int64_t>();
  kernels::table_of(votes.device()).expert_votes(args);
}

}  // namespace

Tensor expert_votes(const Tensor& logits, const RoutingOptions& router, const Tensor& ids,
                    const TokenGroups& groups, VoteOf of, bool maximum) {
  check_route(logits, router);
  const int64_t tokens = logits.size(0);
  check_table("expert_votes", ids, DType::i32, logits, {tokens, router.top_k});
  const Tensor votes = table_of_votes(logits, groups);
  if (logits.is_meta()) return votes;
  const Tensor dense = logits.contiguous();
  kernels::RouteArgs route = route_args(dense, router);
  route.ids = ids.data<int32_t>();
  kernels::VotesArgs args{.router = route};
  args.of = of, args.maximum = maximum;
  vote(args, groups, votes);
  return votes;
}

Routing route_and_vote(const Tensor& logits, const RoutingOptions& router,
                       const RoutingOptions& voter, const TokenGroups& groups, VoteOf of,
                       bool maximum, Tensor& scores, Tensor& votes) {
  require(voter.top_k == router.top_k, ErrorCode::usage,
          "route_and_vote: a vote of {} of {} experts", voter.top_k, router.top_k);
  const Tensor dense = logits.is_meta() ? logits : logits.contiguous();
  PlannedRoute plan = plan_route(dense, router, &scores);
  votes = table_of_votes(logits, groups);
  if (logits.is_meta()) return std::move(plan.routing);
  kernels::VotesArgs args{.router = route_args(dense, voter), .route = plan.args};
  args.router.ids = plan.args.ids;
  args.of = of, args.maximum = maximum;
  vote(args, groups, votes);
  return std::move(plan.routing);
}

Tensor coresets(const Tensor& votes, int64_t count, int64_t bar) {
  require(votes.rank() == 2 && votes.dtype() == DType::i64 && votes.dense(), ErrorCode::usage,
          "coresets: votes {} of {}; expected dense i64 [groups, experts]", votes.shape(),
          tensor::name_of(votes.dtype()));
  const Tensor cores = Tensor::empty(votes.shape(), DType::u8, votes.device());
  if (votes.is_meta()) return cores;
  kernels::table_of(votes.device())
      .coresets({.votes = votes.data<int64_t>(),
                 .groups = votes.size(0),
                 .experts = votes.size(1),
                 .count = count,
                 .bar = bar,
                 .cores = cores.data<uint8_t>()});
  return cores;
}

Routing choose_inside(const Tensor& logits, const RoutingOptions& router, const TokenGroups& groups,
                      const InsideChoice& choice) {
  check_route(logits, router);
  const int64_t tokens = logits.size(0), experts = logits.size(1), k = router.top_k;
  check_table("choose_inside", choice.vanilla.ids, DType::i32, logits, {tokens, k});
  check_table("choose_inside", choice.vanilla.weights, DType::f32, logits, {tokens, k});
  require(choice.slots >= k && choice.slots >= choice.rule.take, ErrorCode::usage,
          "choose_inside: {} slots for {} or {} experts of a token", choice.slots, k,
          choice.rule.take);
  const Routing routing{Tensor::empty({tokens, choice.slots}, DType::i32, logits.device()),
                        Tensor::empty({tokens, choice.slots}, DType::f32, logits.device())};
  tensor::count_op("route", 0, static_cast<double>(tokens * (choice.slots - k) * 8),
                   tensor::op_size(logits));
  if (logits.is_meta()) return routing;
  check_groups("choose_inside", groups, tokens);
  check_table("choose_inside", choice.scores, DType::f32, logits, logits.shape());
  if (choice.cores.defined())
    check_table("choose_inside", choice.cores, DType::u8, logits, {groups.count, experts});
  else if (choice.votes.defined())
    check_table("choose_inside", choice.votes, DType::i64, logits, {groups.count, experts});
  const Tensor dense = logits.contiguous();
  const Uploaded<int32_t> group_of(groups.of, logits.device());
  kernels::InsideArgs args{.router = route_args(dense, router)};
  args.router.ids = choice.vanilla.ids.data<int32_t>();
  args.router.weights = choice.vanilla.weights.data<float>();
  args.router.scores = choice.scores.data<float>();
  args.group_of = group_of.data();
  if (choice.cores.defined())
    args.cores = choice.cores.data<uint8_t>();
  else if (choice.votes.defined())
    args.ballot = {choice.votes.data<int64_t>(), groups.count, choice.count, choice.bar};
  args.rule = choice.rule, args.slots = static_cast<int>(choice.slots);
  args.ids = routing.ids.data<int32_t>(), args.weights = routing.weights.data<float>();
  kernels::table_of(logits.device()).choose_inside(args);
  return routing;
}

Tensor magnitudes(const Tensor& x) {
  require(x.rank() == 2 && tensor::is_float(x.dtype()), ErrorCode::usage,
          "magnitudes: {} of {}; expected floats [tokens, channels]", x.shape(),
          tensor::name_of(x.dtype()));
  const Tensor sums = Tensor::empty({x.size(0)}, DType::f32, x.device());
  if (x.is_meta()) return sums;
  kernels::table_of(x.device())
      .magnitudes({.x = x.raw(),
                   .dtype = x.dtype(),
                   .stride = x.stride(0),
                   .rows = x.size(0),
                   .columns = x.size(1),
                   .sums = sums.data<float>()});
  return sums;
}

Tensor token_fates(const Tensor& importance, const TokenGroups& groups, double low, double high) {
  const int64_t tokens = importance.elements();
  check_table("token_fates", importance, DType::f32, importance, {tokens});
  const Tensor fates = Tensor::empty({tokens}, DType::i8, importance.device());
  if (importance.is_meta()) return fates;
  check_groups("token_fates", groups, tokens);
  const Uploaded<int32_t> group_of(groups.of, importance.device());
  kernels::table_of(importance.device())
      .token_fates({.importance = importance.data<float>(),
                    .group_of = group_of.data(),
                    .tokens = tokens,
                    .groups = groups.count,
                    .low = low,
                    .high = high,
                    .fates = fates.data<int8_t>()});
  return fates;
}

void drop_tail(Routing& routing, const TokenGroups& groups, const Tensor& fates,
               const TailRule& rule) {
  const int64_t tokens = routing.ids.size(0), slots = routing.ids.size(1);
  check_table("drop_tail", routing.ids, DType::i32, routing.ids, {tokens, slots});
  check_table("drop_tail", routing.weights, DType::f32, routing.ids, {tokens, slots});
  if (routing.ids.is_meta()) return;
  check_groups("drop_tail", groups, tokens);
  if (fates.defined()) check_table("drop_tail", fates, DType::i8, routing.ids, {tokens});
  const Uploaded<int32_t> group_of(groups.of, routing.ids.device());
  kernels::table_of(routing.ids.device())
      .drop_tail({.group_of = group_of.data(),
                  .fates = fates.defined() ? fates.data<int8_t>() : nullptr,
                  .tokens = tokens,
                  .slots = static_cast<int>(slots),
                  .beta = rule.beta,
                  .renormalise = rule.renormalise,
                  .full = rule.full,
                  .ids = routing.ids.data<int32_t>(),
                  .weights = routing.weights.data<float>()});
}

}  // namespace tessera::ops

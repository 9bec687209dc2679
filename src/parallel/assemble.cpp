#include "parallel/assemble.h"

#include "base/fail.h"
#include "parallel/sequence/displaced_kv.h"

namespace tessera::parallel {
namespace {

// A token's own number, the same on every rank (splitmix64).
uint32_t token_number(uint64_t row, uint64_t id) {
  uint64_t x = (row << 32 | id) + 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return static_cast<uint32_t>((x ^ x >> 31) >> 32);
}

}  // namespace

bool shares_experts(const Plan& plan) {
  return plan.expert > 1 || plan.schedule != ExpertSchedule::sync ||
         plan.conditional != KeptSlot::all;
}

std::vector<std::string> problems(const Plan& plan, const nn::Geometry& geometry,
                                  const Workload& workload) {
  auto found = schedule_problems(plan, static_cast<int>(geometry.experts.size()));
  if (plan.tensor > 1)
    found.push_back(fmt::format(
        "tensor={}: this version splits the weights of language models only; leave it out",
        plan.tensor));
  const auto placement = placement_problems(plan, geometry);
  found.insert(found.end(), placement.begin(), placement.end());
  if (plan.data > workload.pictures && plan.data > plan.expert)
    found.push_back(
        fmt::format("data={}: the request has {} pictures; use data={} or more pictures", plan.data,
                    workload.pictures, workload.pictures));
  if (plan.distrifusion > workload.tokens)
    found.push_back(fmt::format("distrifusion={}: a picture has {} tokens", plan.distrifusion,
                                workload.tokens));
  for (const nn::AttentionSite& site : geometry.attention)
    if (plan.distrifusion > 1 && (site.joint || site.causal_block > 0)) {
      found.push_back("distrifusion is built for models whose attention sees picture tokens only");
      break;
    }
  return found;
}

std::vector<ExpertEvent> Assembly::expert_events() const {
  std::vector<ExpertEvent> events;
  if (scheduled) {
    events = scheduled->events();
    if (second) events.insert(events.end(), second->events().begin(), second->events().end());
    return events;
  }
  if (!local) return events;
  int step = -1, last = 1 << 30;
  for (const nn::ExpertUse& use : local->uses()) {
    if (use.site <= last) ++step;
    last = use.site;
    events.push_back({.step = step,
                      .layer = use.site,
                      .tokens = use.tokens,
                      .distinct = use.distinct,
                      .rows = {use.tokens * top_k}});
  }
  return events;
}

int64_t Assembly::peak_kept_bytes() const {
  // Both halves have their rows under way at once.
  return (scheduled ? scheduled->peak_kept_bytes() : 0) + (second ? second->peak_kept_bytes() : 0);
}

void Assembly::begin_step(const nn::StepInfo& info) {
  attention->begin_step(info);
  experts->begin_step(info);
  if (second) second->begin_step(info);
}

void Assembly::finish() {
  attention->finish();
  experts->finish();
  if (second) second->finish();
}

bool Assembly::may_record() const {
  return device == tensor::Device::cuda && fixed_weights && plan.world() == 1 && local && !turns;
}

Assembly assemble(const nn::Geometry& geometry, const Plan& plan, const Workload& workload,
                  comm::Communicator* world) {
  const auto found = problems(plan, geometry, workload);
  require(found.empty(), ErrorCode::plan, "the plan cannot run: {}", fmt::join(found, "; "));
  require(plan.world() == (world ? world->size() : 1), ErrorCode::plan,
          "the plan '{}' needs {} ranks, there are {}", to_string(plan), plan.world(),
          world ? world->size() : 1);
  const int rank = world ? world->rank() : 0;
  Assembly assembly;
  assembly.plan = plan;
  assembly.share = share_of(plan, rank, workload.pictures, workload.tokens, workload.branches);
  assembly.blocks = {0, geometry.blocks};
  assembly.world = world;
  if (!geometry.experts.empty()) assembly.top_k = geometry.experts.front().top_k;
  if (plan.distrifusion > 1) {
    assembly.token_group = world->group(token_group(plan, rank));
    assembly.attention =
        std::make_unique<DisplacedKv>(geometry, *assembly.token_group, assembly.share);
  } else {
    assembly.attention = std::make_unique<nn::LocalAttention>(geometry);
  }
  if (!shares_experts(plan)) {
    auto local = std::make_unique<nn::LocalExperts>();
    assembly.local = local.get();
    assembly.experts = std::move(local);
    return assembly;
  }
  if (plan.expert > 1) assembly.expert_group = world->group(expert_group(plan, rank));
  const int experts = geometry.experts.empty() ? 0 : geometry.experts.front().experts;
  const Share share = assembly.share;
  std::function<void()> travels;
  if (plan.schedule == ExpertSchedule::staggered_batch) {
    assembly.turns = std::make_unique<Turns>();
    travels = [turns = assembly.turns.get()] { turns->hand_over(); };
  }
  const auto make = [&] {
    return std::make_unique<ScheduledExperts>(
        geometry, plan, workload.steps,
        ExpertExchange(assembly.expert_group.get(), expert_owners(plan, experts)),
        [share](int row, int64_t id) {
          return token_number(static_cast<uint64_t>(share.global_row(row)),
                              static_cast<uint64_t>(id));
        },
        travels);
  };
  auto scheduled = make();
  if (assembly.turns) assembly.second = make();
  assembly.scheduled = scheduled.get();
  assembly.experts = std::move(scheduled);
  return assembly;
}

}  // namespace tessera::parallel

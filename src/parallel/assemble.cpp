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
  if (plan.distrifusion > workload.tokens())
    found.push_back(fmt::format("distrifusion={}: a picture has {} tokens", plan.distrifusion,
                                workload.tokens()));
  for (const nn::AttentionSite& site : geometry.attention)
    if (plan.distrifusion > 1 && (site.joint || site.causal_block > 0)) {
      found.push_back("distrifusion is built for models whose attention sees picture tokens only");
      break;
    }
  return found;
}

std::vector<nn::MoeEvent> Assembly::expert_events() const {
  std::vector<nn::MoeEvent> events = experts->log().events();
  if (second)
    events.insert(events.end(), second->log().events().begin(), second->log().events().end());
  return events;
}

int64_t Assembly::peak_kept_bytes() const {
  // Both halves have their rows under way at once.
  return experts->log().peak_kept_bytes() + (second ? second->log().peak_kept_bytes() : 0);
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
  return device == tensor::Device::cuda && fixed_weights && plan.world() == 1 &&
         !shares_experts(plan) && !experts->log().watched();
}

Assembly::Assembly(const nn::Geometry& geometry, const Plan& asked, const Workload& workload,
                   comm::Communicator* ranks)
    : plan(asked),
      world(ranks),
      rank(ranks ? ranks->rank() : 0),
      partition(asked, workload),
      blocks{0, geometry.blocks} {
  const auto found = problems(plan, geometry, workload);
  require(found.empty(), ErrorCode::plan, "the plan cannot run: {}", fmt::join(found, "; "));
  require(plan.world() == (world ? world->size() : 1), ErrorCode::plan,
          "the plan '{}' needs {} ranks, there are {}", to_string(plan), plan.world(),
          world ? world->size() : 1);
  if (plan.distrifusion > 1) {
    constexpr std::string_view kAxis[] = {"distrifusion"};
    token_group = partition.mesh().communicator(*world, kAxis);
    attention =
        std::make_unique<DisplacedKv>(geometry, whole_rows(workload, partition.rows(rank).size()),
                                      *token_group, partition.mesh().group(rank, kAxis), partition);
  } else {
    attention = std::make_unique<nn::LocalAttention>(geometry);
  }
  if (!shares_experts(plan)) {
    experts = std::make_unique<nn::MoeLayers>();
    return;
  }
  if (plan.expert > 1) expert_group = world->group(parallel::expert_group(plan, rank));
  const int count = geometry.experts.empty() ? 0 : geometry.experts.front().experts;
  ScheduleHooks hooks{.kept = [rows = partition.rows(rank)](int row, int64_t id) {
    return token_number(static_cast<uint64_t>(rows.at(static_cast<size_t>(row))),
                        static_cast<uint64_t>(id));
  }};
  if (plan.schedule == ExpertSchedule::staggered_batch) {
    turns = std::make_unique<Turns>();
    hooks.travels = [this] { turns->hand_over(); };
  }
  const auto make = [&] {
    return std::make_unique<nn::MoeLayers>(
        std::make_shared<nn::VanillaPolicy>(),
        std::make_unique<ScheduledExchange>(
            plan, Timetable(plan, static_cast<int>(geometry.experts.size()), workload.steps),
            ExpertExchange(expert_group.get(), expert_owners(plan, count)), hooks));
  };
  experts = make();
  if (turns) second = make();
}

}  // namespace tessera::parallel

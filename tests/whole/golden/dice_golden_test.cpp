#include <gtest/gtest.h>

#include <mutex>

#include "base/json.h"
#include "comm/threads/launch.h"
#include "diffusion/denoise.h"
#include "nn/token_layout.h"
#include "test_paths.h"
#include "whole/golden.h"

namespace tessera {
namespace {

using base::Json;
using tensor::Tensor;

constexpr const char* kMoe = TESSERA_TEST_DATA "/moe/";

std::vector<int> list_of(const Json& json) { return json.get<std::vector<int>>(); }

void expert_plan(const Json& schedule, Plan& plan) {
  const std::string mode = schedule["mode"];
  if (mode == "interweaved") plan.schedule = ExpertSchedule::interweaved;
  if (mode == "displaced") plan.schedule = ExpertSchedule::displaced;
  if (mode != "sync") {
    plan.sync_list = list_of(schedule["sync_layers"]);
    if (!plan.sync_list.empty()) plan.sync = SyncLayers::list;
  }
  if (schedule["scores"] == "latest") plan.scores = StaleScores::latest;
  if (!schedule.contains("conditional")) return;
  const Json& c = schedule["conditional"];
  plan.stride = c["stride"];
  plan.conditional_all_layers = c["layers"] == "all";
  plan.conditional = c["strategy"] == "low"    ? KeptSlot::low
                     : c["strategy"] == "high" ? KeptSlot::high
                                               : KeptSlot::random;
}

Plan plan_of(const Json& schedule, int ranks) {
  Plan plan;
  plan.warmup = schedule["warmup"].get<int>() + 1;  // the cases count the cold start apart
  plan.sync_every = schedule["stride"];
  if (schedule.contains("shards")) {
    plan.distrifusion = schedule["shards"];
    expert_plan(schedule["experts"], plan);
  } else {
    plan.data = plan.expert = ranks;
    expert_plan(schedule, plan);
  }
  return plan;
}

/// A case with its model, to run a schedule under a plan.
class DiceCase {
 public:
  explicit DiceCase(const std::string& folder)
      : io_(folder + "/io.safetensors"), case_(base::read_json(folder + "/case.json")) {
    RunOptions options = golden::options(Precision::f32, 1);
    state_.options = options;
    state_.folder = load::open_folder(folder + "/model");
    const load::Component& part = state_.folder.component("transformer");
    state_.spec = models::pipeline_of(part.class_name, {part.config, "config.json"});
  }
  const Json& json() const { return case_; }
  Tensor get(const std::string& name) const { return io_.get(name); }
  bool has(const std::string& name) const { return io_.entries().contains(name); }

  struct Outcome {
    std::vector<Tensor> latents;                    // after each step
    std::vector<std::vector<nn::MoeEvent>> events;  // by rank
    int64_t sent_bytes = 0;
  };
  Outcome run(const Json& schedule, int ranks) {
    const Plan plan = plan_of(schedule, ranks);
    state_.options.plan = plan;
    state_.loaded.transformers.release();
    for (int r = 0; r < plan.expert; ++r) state_.transformer(r);
    Outcome outcome;
    outcome.events.resize(size_t(plan.world()));
    std::mutex mutex;
    const auto body = [&](comm::Communicator* world) {
      run_rank(schedule, plan, world, outcome, mutex);
    };
    if (plan.world() == 1) {
      body(nullptr);
    } else {
      comm::threads::run(plan.world(), std::chrono::seconds(60),
                         [&](comm::Communicator& w) { body(&w); });
    }
    return outcome;
  }

 private:
  void run_rank(const Json& schedule, const Plan& plan, comm::Communicator* world, Outcome& outcome,
                std::mutex& mutex) {
    const int rank = world ? world->rank() : 0, samples = case_["samples"], steps = case_["steps"];
    const Tensor start = get(schedule["start"]);
    const nn::TokenLayout layout = state_.spec->layout(start.size(2), start.size(3));
    const auto held = state_.transformer(rank);
    const nn::Denoiser& model = *held;
    parallel::Setup setup(plan, model.geometry(), {samples, layout.grid(), 2, steps}, world);
    const parallel::Partition& partition = setup.partition;
    use_given_slots(plan, model.geometry(), setup, layout.tokens());
    std::vector<int> classes;
    const auto labels = get("labels").to_ints();
    for (const int row : partition.sequences(rank))
      if (row < samples) classes.push_back(int(labels[size_t(row)]));
    parallel::DenoiseControl control;
    control.trace = [&](const std::string& name, const Tensor& x) {
      if (name.rfind("latents.", 0) != 0) return;
      std::vector<Tensor> parts{x};
      if (world) parts = comm::gather(*world, 0, x, {"trace", -1});
      if (rank == 0)
        outcome.latents.push_back(nn::from_tokens(partition.join(parts), layout, false));
    };
    parallel::denoise(
        model, state_.spec->conditioning(classes, true), *sample::rectified_flow(steps),
        {case_["cfg_scale"], layout.channels}, partition.cut(nn::to_tokens(start, layout), rank),
        [](int) { return Tensor(); }, setup, control);
    const std::lock_guard lock(mutex);
    outcome.events[size_t(rank)] = setup.expert_events();
    if (!world) return;
    for (const auto& [key, entry] : world->ledger().entries()) {
      const bool rows = key.first == "dispatch" || key.first == "combine";
      if (rows) outcome.sent_bytes += entry.bytes;
    }
  }

  // KeptSlot::random: the slots of the case instead of ours.
  void use_given_slots(const Plan& plan, const nn::Geometry& geometry, parallel::Setup& setup,
                       int64_t tokens) {
    if (plan.conditional != KeptSlot::random) return;
    const auto slots = get("kept_slot").to_ints();
    const auto rows = setup.partition.sequences(setup.rank);
    const parallel::Timetable timetable(plan, int(geometry.experts.size()), case_["steps"]);
    parallel::ScheduleHooks hooks{.kept_slot = [=](int sequence, int64_t id) {
      return uint32_t(slots[size_t(rows[size_t(sequence)] * tokens + id)]);
    }};
    setup.experts = std::make_unique<nn::MoeLayers>(
        std::make_shared<nn::VanillaPolicy>(),
        std::make_unique<parallel::ScheduledExchange>(
            plan, timetable,
            parallel::ExpertExchange(
                setup.expert_group.get(),
                parallel::experts_in_blocks(geometry.experts[0].experts, plan.expert)),
            hooks));
  }

  load::SafetensorsFile io_;
  Json case_;
  runtime::ModelState state_;
};

void expect_latents(const DiceCase& c, const std::string& name, const DiceCase::Outcome& outcome) {
  const Tensor expected = c.get(name + ".latents");
  ASSERT_EQ(int64_t(outcome.latents.size()), expected.size(0)) << name;
  for (int64_t s = 0; s < expected.size(0); ++s)
    EXPECT_LT(golden::max_error(outcome.latents[size_t(s)].to_floats(), golden::row(expected, s)),
              1e-4)
        << name << ", after step " << s;
}

void expect_ages(const Json& schedule, const DiceCase::Outcome& outcome) {
  std::map<std::pair<int, int>, int> oldest, changed, sent;
  for (const auto& rank : outcome.events)
    for (const auto& event : rank) {
      const std::pair<int, int> at{event.step, event.site};
      EXPECT_EQ(event.lag, schedule["lag"][size_t(event.step)][size_t(event.site)]);
      EXPECT_EQ(int(event.sent), schedule["consumed"][size_t(event.step)][size_t(event.site)]);
      oldest[at] = std::max(oldest[at], event.oldest);
      changed[at] += int(event.changed);
      for (int64_t rows : event.assignments) sent[at] += int(rows);
    }
  ASSERT_EQ(oldest.size(), schedule["lag"].size() * schedule["lag"][0].size());
  if (!schedule.contains("oldest_row")) return;
  for (const auto& [at, age] : oldest) {
    const auto [s, l] = std::pair{size_t(at.first), size_t(at.second)};
    EXPECT_EQ(age, schedule["oldest_row"][s][l]) << "step " << s << ", layer " << l;
    EXPECT_EQ(changed[at], schedule["rows_changed"][s][l]) << "step " << s << ", layer " << l;
    EXPECT_EQ(sent[at], schedule["rows_sent"][s][l]) << "step " << s << ", layer " << l;
  }
}

void expect_traffic(const DiceCase& c, const Json& schedule, int ranks,
                    const DiceCase::Outcome& outcome) {
  const std::string name = schedule["name"], key = name + ".rows." + std::to_string(ranks);
  ASSERT_TRUE(c.has(key)) << key;
  const Tensor rows = c.get(key);
  const auto expected = rows.to_ints();
  const size_t layers = size_t(rows.size(1)), n = size_t(ranks);
  for (size_t r = 0; r < n; ++r) {
    EXPECT_GE(outcome.events[r].size() * n * n, expected.size()) << name;
    for (const auto& event : outcome.events[r])
      for (size_t p = 0; p < n; ++p) {
        EXPECT_EQ(event.assignments[p],
                  expected[((size_t(event.step) * layers + size_t(event.site)) * n + r) * n + p])
            << name << ": step " << event.step << ", layer " << event.site << ", " << r << " to "
            << p;
      }
  }
  const Json& elided = schedule["traffic"][std::to_string(ranks)]["elided"];
  const int64_t numbers = 4 * elided["remote_dispatch_rows"].get<int64_t>();  // numbers of experts
  EXPECT_EQ(outcome.sent_bytes, elided["bytes_f32"].get<int64_t>() + numbers) << name;
}

// The cases of the test data (a choice of schedules), and all cases of a folder named by
// TESSERA_GOLDEN_MOE.
std::vector<std::string> folders() {
  std::vector<std::string> found{std::string(kMoe) + "dice_ep", std::string(kMoe) + "dice_cond"};
  if (const char* elsewhere = std::getenv("TESSERA_GOLDEN_MOE"))
    for (const char* name : {"dice_ep", "dice_cond", "dice_cond_k3", "dice_sp"})
      found.push_back(std::string(elsewhere) + "/" + name);
  return found;
}

class DiceGolden : public testing::TestWithParam<std::string> {};

TEST_P(DiceGolden, LatentsAgesAndRowsAreThoseOfTheReference) {
  DiceCase c(GetParam());
  for (const Json& schedule : c.json()["schedules"]) {
    const std::string name = schedule["name"];
    if (schedule.contains("shards")) {
      expect_latents(c, name, c.run(schedule, 1));
      continue;
    }
    for (int ranks : {1, 2, 4}) {
      const DiceCase::Outcome outcome = c.run(schedule, ranks);
      expect_latents(c, name, outcome);
      expect_ages(schedule, outcome);
      if (ranks > 1) expect_traffic(c, schedule, ranks, outcome);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, DiceGolden, testing::ValuesIn(folders()));

}  // namespace
}  // namespace tessera

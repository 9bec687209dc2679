// Stale schedules through fused operators beside the same by bulk exchanges.
#include "parallel/experts/fused_carrier.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "comm/simulated/launch.h"
#include "comm/threads/launch.h"
#include "fused/open_heap.h"
#include "nn/moe/moe_layers.h"
#include "nn/random_bank.h"
#include "ops/elementwise.h"
#include "parallel/experts/measured_ranks.h"
#include "parallel/experts/scheduled.h"
#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::parallel {
namespace {

using namespace std::chrono_literals;
using namespace nn::random_bank;

constexpr int kExperts = 6, kTokens = 150, kSites = 3, kSteps = 7, kSlots = 3;

const char* const kSchedules[] = {
    "schedule=displaced",
    "schedule=interweaved",
    "schedule=interweaved,sync=deep",
    "schedule=interweaved,sync=1,warmup=2,cooldown=1",
    "schedule=displaced,sync=staggered,sync-every=3",
    "conditional=low,stride=3",
    "schedule=interweaved,conditional=low",
    "schedule=displaced,conditional=high,scores=latest",
    "schedule=interweaved,conditional=random,conditional-layers=async",
    "schedule=adaptive,budget=40"};

std::unique_ptr<nn::MoeLayers> scheduled(const std::string& text, comm::Communicator& world,
                                         const std::vector<int>& owner, bool fused,
                                         int64_t window) {
  const Plan plan = parse_plan(text);
  std::unique_ptr<ExpertCarrier> carrier = std::make_unique<ExpertExchange>(&world, owner);
  if (fused)
    carrier = std::make_unique<FusedCarrier>(world, FusedSize{owner, kTokens, kSlots}, window);
  return std::make_unique<nn::MoeLayers>(
      std::make_shared<nn::VanillaPolicy>(),
      std::make_unique<ScheduledExchange>(
          plan, Timetable(plan, kSites, kSteps), std::move(carrier),
          ScheduleHooks{[](int, int64_t id) { return uint32_t(id); }, {}}));
}

// A rank's work in all steps.
struct Did {
  std::vector<std::vector<float>> made;
  std::vector<nn::MoeEvent> events;
  std::map<std::pair<std::string, int>, comm::Ledger::Entry> sent;
  int64_t coming = 0, bound = 0;
};

std::vector<Did> steps_of(int ranks, const char* text, bool fused, DType dtype,
                          int64_t window = 0) {
  std::vector<Did> all(static_cast<size_t>(ranks));
  const Plan plan = parse_plan(text);
  comm::threads::run(ranks, 60s, [&](comm::Communicator& world) {
    const std::vector<int> owner = experts_in_blocks(kExperts, ranks);
    std::vector<bool> held;
    for (const int o : owner) held.push_back(o == world.rank());
    const nn::Range run = nn::split({0, kTokens}, ranks, world.rank());
    const auto experts = scheduled(text, world, owner, fused, window);
    Did& did = all[static_cast<size_t>(world.rank())];
    for (int step = 0; step < kSteps; ++step) {
      experts->begin_step({step, kSteps, plan.fresh(step, kSteps), step + 1 == kSteps});
      for (int site = 0; site < kSites; ++site) {
        const nn::TokenView view{-1, {0}, {}, {{0, run}}, {}};
        const Tensor x = ops::cast(normal({kTokens, 32}, uint32_t(10 * step + site)), dtype);
        did.made.push_back(experts
                               ->apply(site, view, x.slice(0, run.begin, run.end),
                                       router(kExperts, kSlots, uint32_t(site)),
                                       bank(kExperts, uint32_t(site), dtype, held))
                               .to_floats());
      }
    }
    experts->finish();
    did.events = experts->log().events();
    did.coming = experts->log().most_coming();
    did.bound = experts->log().coming_bound();
    for (const auto& [key, entry] : world.ledger().entries())
      if (key.second >= 0) did.sent[key] = entry;
  });
  return all;
}

void expect_alike(const Did& fused, const Did& bulk, int64_t row, const std::string& what) {
  EXPECT_EQ(fused.made, bulk.made) << what;
  ASSERT_EQ(fused.events.size(), bulk.events.size()) << what;
  for (size_t i = 0; i < bulk.events.size(); ++i) {
    const nn::MoeEvent &a = fused.events[i], &b = bulk.events[i];
    EXPECT_EQ(a.assignments, b.assignments) << what;
    EXPECT_EQ(a.distinct, b.distinct) << what;
    EXPECT_EQ(std::tuple(a.step, a.site, a.tokens, a.sent, a.changed, a.lag, a.oldest),
              std::tuple(b.step, b.site, b.tokens, b.sent, b.changed, b.lag, b.oldest))
        << what;
  }
  ASSERT_EQ(fused.sent.size(), bulk.sent.size()) << what;
  for (const auto& [key, entry] : bulk.sent) {
    const int64_t rows = entry.bytes / (key.first == "dispatch" ? row + 4 : row);
    EXPECT_EQ(fused.sent.at(key).bytes, rows * row) << what << ", " << key.first;
  }
}

void expect_exchange() {
  for (const char* schedule : kSchedules)
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int ranks : {1, 2, 3, 4}) {
        const auto bulk = steps_of(ranks, schedule, false, dtype),
                   fused = steps_of(ranks, schedule, true, dtype);
        for (size_t r = 0; r < bulk.size(); ++r)
          expect_alike(fused[r], bulk[r], 32 * size_of(dtype),
                       std::string(schedule) + " on " + std::to_string(ranks));
      }
}

TEST(FusedCarrier, IsTheExchangeBitByBitUnderEverySchedule) { expect_exchange(); }

TEST(FusedCarrier, AndSoWhereRowsTravelAsMessages) {
  ::setenv("TESSERA_HEAP", "messages", 1);
  for (const char* schedule : {"schedule=displaced", "schedule=interweaved,conditional=low"}) {
    const auto bulk = steps_of(3, schedule, false, DType::f32),
               fused = steps_of(3, schedule, true, DType::f32);
    for (size_t r = 0; r < bulk.size(); ++r) expect_alike(fused[r], bulk[r], 128, schedule);
  }
  ::unsetenv("TESSERA_HEAP");
}

// Four tiles of 64 rows at least: some layers have more for a rank, which leave later.
TEST(FusedCarrier, RowsBeyondAWindowLeaveLater) {
  for (const char* schedule : {"schedule=displaced", "schedule=interweaved"}) {
    const auto bulk = steps_of(2, schedule, false, DType::f32),
               fused = steps_of(2, schedule, true, DType::f32, 1);
    for (size_t r = 0; r < bulk.size(); ++r) {
      expect_alike(fused[r], bulk[r], 128, schedule);
      EXPECT_GT(fused[r].coming, 0);
      EXPECT_LE(fused[r].coming, fused[r].bound);
      // Two lanes, rows and results, of one other rank.
      EXPECT_EQ(fused[r].bound, 2 * 2 * 4 * 64 * 128);
    }
  }
}

struct Peaks {
  int64_t activations, buffers, total, left, kept;
  double flops;
};

// All steps on ranks with different numbers of tokens; routers choose experts evenly.
std::vector<Peaks> peaks_on(tensor::Device where, const char* text) {
  constexpr int64_t kOf[] = {70, 0, 129};
  const Plan plan = parse_plan(text);
  std::vector<tensor::Scope> scopes = measured_scopes();
  std::vector<nn::ExpertWeights> weights(3, bank_on(kExperts, where));
  const nn::Router same = even_router(kExperts, where);
  std::vector<Tensor> inputs;
  for (const int64_t tokens : kOf) inputs.push_back(normal({tokens, 32}, 1).to(where));
  std::vector<Peaks> peaks(3);
  comm::simulated::run(scopes, 60s, [&](comm::Communicator& world) {
    const auto r = static_cast<size_t>(world.rank());
    {
      const auto experts = scheduled(text, world, experts_in_blocks(kExperts, 3), true, 0);
      for (int step = 0; step < kSteps; ++step) {
        experts->begin_step({step, kSteps, plan.fresh(step, kSteps), step + 1 == kSteps});
        for (int site = 0; site < kSites; ++site) {
          const nn::TokenView view{-1, {0}, {}, {{0, {0, kOf[r]}}}, {}};
          (void)experts->apply(site, view, inputs[r], same, weights[r]);
        }
      }
      experts->finish();
      peaks[r].left = tensor::current_scope().memory->current(tensor::MemoryClass::buffers);
      peaks[r].kept = experts->log().peak_kept_bytes();
    }
    const tensor::Scope& scope = scopes[r];
    peaks[r].activations = scope.memory->peak(tensor::MemoryClass::activations);
    peaks[r].buffers = scope.memory->peak(tensor::MemoryClass::buffers);
    peaks[r].total = scope.memory->peak();
    peaks[r].flops = scope.meter->total().flops;
  });
  return peaks;
}

TEST(FusedCarrier, ADryRunIsTheRun) {
  for (const char* schedule :
       {"schedule=interweaved", "schedule=displaced", "schedule=interweaved,sync=deep"}) {
    const auto did = peaks_on(tensor::Device::cpu, schedule),
               predicted = peaks_on(tensor::Device::meta, schedule);
    for (size_t r = 0; r < did.size(); ++r) {
      EXPECT_EQ(predicted[r].activations, did[r].activations) << schedule << r;
      EXPECT_EQ(predicted[r].buffers, did[r].buffers) << schedule << r;
      EXPECT_EQ(predicted[r].total, did[r].total) << schedule << r;
      EXPECT_EQ(predicted[r].kept, did[r].kept) << schedule << r;
      EXPECT_EQ(predicted[r].flops, did[r].flops) << schedule << r;
    }
  }
}

// A heap of two lanes, however many layers are stale; rows of each stale layer are kept beside.
TEST(FusedCarrier, TheHeapIsTwoLanesForAnyNumberOfLayers) {
  const auto layout = fused::Layout::dropless(3, kExperts / 3, kTokens * 2, 32 * 4, {64}, 1 << 20);
  for (const auto& [schedule, ages] :
       {std::pair{"schedule=interweaved", 1}, {"schedule=displaced", 2}}) {
    const auto did = peaks_on(tensor::Device::cpu, schedule);
    for (size_t r = 0; r < did.size(); ++r) {
      EXPECT_EQ(did[r].left, fused::heap_of(layout, 2).bytes) << schedule;
      const int64_t rows = (r == 0 ? 70 : r == 1 ? 0 : 129) * 2 * 32 * 4;
      EXPECT_EQ(did[r].kept, ages * kSites * rows) << schedule;
    }
  }
}

}  // namespace
}  // namespace tessera::parallel

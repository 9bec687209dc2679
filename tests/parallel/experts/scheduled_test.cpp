#include "parallel/experts/scheduled.h"

#include <gtest/gtest.h>

#include <map>

#include "comm/threads/launch.h"
#include "nn/moe/moe_layers.h"
#include "nn/random_bank.h"
#include "ops/elementwise.h"
#include "parallel/experts/fused_carrier.h"
#include "tessera/error.h"

namespace tessera::parallel {
namespace {

using namespace nn::random_bank;

constexpr int kLayers = 3, kExperts = 4, kTokens = 6;

std::unique_ptr<nn::MoeLayers> scheduled(const Plan& plan, int steps,
                                         std::unique_ptr<ExpertCarrier> carrier,
                                         const std::function<void()>& travels = {}) {
  return std::make_unique<nn::MoeLayers>(
      std::make_shared<nn::VanillaPolicy>(),
      std::make_unique<ScheduledExchange>(
          plan, Timetable(plan, kLayers, steps), std::move(carrier),
          ScheduleHooks{[](int, int64_t id) { return uint32_t(id); }, travels}));
}

std::unique_ptr<nn::MoeLayers> scheduled(const Plan& plan, int steps, ExpertExchange exchange,
                                         const std::function<void()>& travels = {}) {
  return scheduled(plan, steps, std::make_unique<ExpertExchange>(std::move(exchange)), travels);
}

struct Outcome {
  std::vector<std::vector<float>> outputs;  // step by step, layer by layer
  std::vector<nn::MoeEvent> events;
  int64_t kept = 0;
};

Tensor input(int step, int layer) {
  return normal({kTokens, 32}, uint32_t(1 + step * 100 + layer));
}

nn::TokenView view() {
  nn::TokenView v;
  v.sequences = {0};
  v.body = {{0, {0, kTokens}}};
  return v;
}

Outcome run(const std::string& text, int steps, const std::function<void()>& travels = {}) {
  const Plan plan = parse_plan(text);
  const auto layers =
      scheduled(plan, steps, ExpertExchange(nullptr, std::vector<int>(kExperts)), travels);
  nn::MoeLayers& experts = *layers;
  Outcome result;
  for (int s = 0; s < steps; ++s) {
    experts.begin_step({s, steps, plan.fresh(s, steps), true});
    for (int l = 0; l < kLayers; ++l)
      result.outputs.push_back(experts
                                   .apply(l, view(), input(s, l),
                                          router(kExperts, 2, uint32_t(50 + l)),
                                          bank(kExperts, uint32_t(1000 * l + 1), DType::f32))
                                   .to_floats());
  }
  experts.finish();
  result.events = experts.log().events();
  result.kept = experts.log().peak_kept_bytes();
  return result;
}

std::vector<float> local(int step, int layer) {
  nn::MoeLayers experts;
  return experts
      .apply(layer, view(), input(step, layer), router(kExperts, 2, uint32_t(50 + layer)),
             bank(kExperts, uint32_t(1000 * layer + 1), DType::f32))
      .to_floats();
}

TEST(ScheduledExchange, SynchronousIsLocalBitForBit) {
  for (const char* plan : {"", "schedule=displaced,warmup=5", "schedule=interweaved,sync=0+1+2",
                           "conditional=low,stride=1", "schedule=adaptive,budget=100",
                           "schedule=adaptive,budget=0,warmup=5"}) {
    const Outcome got = run(plan, 5);
    for (int s = 0; s < 5; ++s)
      for (int l = 0; l < kLayers; ++l)
        EXPECT_EQ(got.outputs[size_t(s * kLayers + l)], local(s, l))
            << plan << ", step " << s << ", layer " << l;
  }
}

TEST(ScheduledExchange, EventsSayWhatWasRead) {
  const Outcome got = run("schedule=displaced", 5);
  std::vector<int> lags;
  for (const nn::MoeEvent& event : got.events)
    if (event.site == 1) lags.push_back(event.lag);
  EXPECT_EQ(lags, (std::vector<int>{0, 1, 2, 2, 2}));
  EXPECT_TRUE(got.events[2 * kLayers].sent);
  EXPECT_FALSE(got.events[3 * kLayers].sent) << "no step reads the last two results";
}

TEST(ScheduledExchange, InterweavedKeepsLessThanDisplaced) {
  for (const auto& [more, layers] :
       {std::pair<std::string, int>{"", 3}, {",sync=0", 2}, {",sync=0+2", 1}}) {
    const Outcome interweaved = run("schedule=interweaved" + more, 8);
    const Outcome displaced = run("schedule=displaced" + more, 8);
    EXPECT_LE(double(interweaved.kept), double(layers + 1) / (2 * layers) * double(displaced.kept))
        << more;
  }
  EXPECT_EQ(run("", 4).kept, 0) << "a synchronous schedule keeps nothing";
}

TEST(ScheduledExchange, SkippedSlotsAreOlder) {
  const Outcome got = run("schedule=interweaved,conditional=low,stride=4", 9);
  int oldest = 0;
  int64_t sent = 0, full = 0;
  for (const nn::MoeEvent& event : got.events) {
    oldest = std::max(oldest, event.oldest);
    sent += event.assignments[0];
    full += 2 * kTokens;
  }
  EXPECT_LE(oldest, 1 + 3);
  EXPECT_LT(sent, full);
}

TEST(ScheduledExchange, AdaptiveKeepsItsBudget) {
  std::map<int, int64_t> ages;
  for (int budget : {0, 25, 60}) {
    const Outcome got = run("schedule=adaptive,budget=" + std::to_string(budget), 9);
    for (const nn::MoeEvent& event : got.events) {
      const int64_t all = 2 * kTokens, allowed = (budget * all + 50) / 100;
      EXPECT_EQ(event.lag, 0);
      EXPECT_EQ(event.assignments[0], event.step == 0 ? all : std::max(allowed, event.changed));
      ages[budget] += event.oldest;
    }
    EXPECT_GT(got.kept, 0);
  }
  EXPECT_GT(ages[0], ages[60]) << "a larger budget refreshes what is oldest";
}

TEST(ScheduledExchange, AdaptiveRefreshesTheRowsThatMoved) {
  const Plan plan = parse_plan("schedule=adaptive,budget=50");
  const auto layers = scheduled(plan, 3, ExpertExchange(nullptr, std::vector<int>(kExperts)));
  nn::MoeLayers& experts = *layers;
  const nn::Router route = router(kExperts, 2, 50);
  const nn::ExpertWeights experts_of_layer = bank(kExperts, 1, DType::f32);
  const Tensor first = input(0, 0);
  std::vector<float> moved = first.to_floats();
  for (int64_t t = 1; t < kTokens; t += 2)
    for (int64_t c = 0; c < 32; ++c) moved[size_t(t * 32 + c)] *= 1.001f;
  const Tensor second = Tensor::from(std::span<const float>(moved), {kTokens, 32});
  nn::MoeLayers local;
  experts.begin_step({0, 3, true, false});
  experts.apply(0, view(), first, route, experts_of_layer);
  experts.begin_step({1, 3, false, false});
  const auto got = experts.apply(0, view(), second, route, experts_of_layer).to_floats();
  EXPECT_EQ(got, local.apply(0, view(), second, route, experts_of_layer).to_floats())
      << "half of the tokens stood still, so refreshing the other half is exact";
}

TEST(ScheduledExchange, SaysTwiceACallThatItsRowsTravel) {
  int waits = 0;
  const Outcome halves = run("schedule=staggered-batch", 3, [&] { ++waits; });
  EXPECT_EQ(waits, 2 * 3 * kLayers);
  EXPECT_EQ(halves.outputs, run("", 3).outputs);
  EXPECT_EQ(halves.kept, kTokens * 2 * (32 * 4 + 4)) << "the rows of one layer, and their experts";
}

TEST(ScheduledExchange, KeepsWhatThePublishedFormulasSay) {
  constexpr int64_t kToken = kTokens * 32 * 4, kHome = 2 * kToken, kWire = kHome + kTokens * 2 * 4;
  for (const auto& [plan, kept] : {std::pair<const char*, int64_t>{"", 0},
                                   {"schedule=interweaved", kLayers * kWire},
                                   {"schedule=interweaved,sync=0", (kLayers - 1) * kWire},
                                   {"schedule=interweaved,warmup=9", 0},
                                   {"schedule=displaced", 2 * kLayers * kWire},
                                   {"schedule=displaced,sync-every=1", 0},
                                   {"schedule=adaptive", kLayers * (kHome + kToken)}})
    EXPECT_EQ(run(plan, 9).kept, kept) << plan;
  EXPECT_EQ(run("schedule=interweaved", 2).kept, kLayers * kHome) << "the last result is not sent";
  for (const auto& [plan, most] :
       {std::pair<const char*, int64_t>{"conditional=low", kLayers * kHome},
        {"schedule=interweaved,conditional=low", kLayers * (kHome + kWire)}}) {
    EXPECT_LE(run(plan, 9).kept, most) << plan;
    EXPECT_GT(2 * run(plan, 9).kept, most) << plan;
  }
}

// Two rows of 6 tokens, by step and layer.
Tensor sequences_of(int step, int layer) {
  return normal({12, 32}, uint32_t(700 + step * 10 + layer));
}

/// A split of a step's tokens into calls: (row, ids) each; fresh steps are whole.
using Cut = std::vector<nn::Segments>;
const nn::Segments kWhole{{0, {0, 6}}, {1, {0, 6}}};

// Places of tokens in the whole.
std::vector<int32_t> places(const nn::Segments& of) {
  std::vector<int32_t> at;
  for (const nn::Segment& s : of)
    for (int64_t id = s.ids.begin; id < s.ids.end; ++id) at.push_back(int32_t(6 * s.sequence + id));
  return at;
}

// A rank's results, each token at its place in the whole; zeros elsewhere.
std::vector<float> cut_run(const std::string& text, const Cut& cut, comm::Communicator* world,
                           const std::function<nn::Segments(const nn::Segments&)>& mine,
                           bool fused = false) {
  constexpr int kSteps = 7;
  const Plan plan = parse_plan(text);
  const int ranks = world ? world->size() : 1;
  const auto owner = experts_in_blocks(kExperts, ranks);
  std::vector<bool> held;
  for (int o : owner) held.push_back(!world || o == world->rank());
  std::unique_ptr<ExpertCarrier> carrier = std::make_unique<ExpertExchange>(world, owner);
  if (fused) carrier = std::make_unique<FusedCarrier>(*world, FusedSize{owner, 12, 2});
  const auto layers = scheduled(plan, kSteps, std::move(carrier));
  std::vector<float> all;
  for (int s = 0; s < kSteps; ++s) {
    const bool fresh = plan.fresh(s, kSteps);
    layers->begin_step({s, kSteps, fresh, s + 1 == kSteps || plan.fresh(s + 1, kSteps)});
    std::vector<Tensor> out;
    for (int l = 0; l < kLayers; ++l) out.push_back(Tensor::zeros({12, 32}, DType::f32));
    const Cut calls = fresh ? Cut{kWhole} : cut;
    for (size_t p = 0; p < calls.size(); ++p)
      for (int l = 0; l < kLayers; ++l) {
        const nn::TokenView view{fresh ? -1 : int(p), {0, 1}, {}, mine(calls[p])};
        const auto at = places(view.body);
        const Tensor x = ops::gather_rows(sequences_of(s, l), at, DType::f32);
        const Tensor y = layers->apply(l, view, x, router(kExperts, 2, uint32_t(50 + l)),
                                       bank(kExperts, uint32_t(1000 * l + 1), DType::f32, held));
        if (!at.empty()) ops::move_rows(y, {}, out[size_t(l)], at);
      }
    for (const Tensor& o : out) {
      const auto values = o.to_floats();
      all.insert(all.end(), values.begin(), values.end());
    }
  }
  layers->finish();
  return all;
}

const char* const kSchedules[] = {"",
                                  "schedule=displaced",
                                  "schedule=interweaved,warmup=2",
                                  "schedule=displaced,sync-every=3",
                                  "conditional=low,stride=3",
                                  "schedule=interweaved,conditional=random,stride=2",
                                  "schedule=displaced,conditional=high,scores=latest",
                                  "schedule=adaptive,budget=0"};
const Cut kIds{{{0, {0, 4}}, {1, {0, 4}}}, {{0, {4, 6}}, {1, {4, 6}}}},
    kRows{{{0, {0, 6}}}, {{1, {0, 6}}}},
    kThree{{{0, {0, 1}}, {1, {2, 6}}}, {{0, {1, 6}}}, {{1, {0, 2}}}};

TEST(ScheduledExchange, PatchesOfIdsOrOfRowsAreOneCallBitForBit) {
  const auto all = [](const nn::Segments& s) { return s; };
  for (const char* plan : kSchedules) {
    const auto whole = cut_run(plan, {kWhole}, nullptr, all);
    for (const Cut& cut : {kIds, kRows, kThree})
      EXPECT_EQ(cut_run(plan, cut, nullptr, all), whole) << plan << ", " << cut.size() << " calls";
  }
}

TEST(ScheduledExchange, RanksWithoutTokensOfAPatchTakePartInIt) {
  for (const char* plan : kSchedules) {
    const auto whole = cut_run(plan, {kWhole}, nullptr, [](const nn::Segments& s) { return s; });
    for (const auto& [ranks, fused] :
         {std::pair{2, false}, {3, false}, {2, true}, {3, true}, {4, true}}) {
      std::vector<std::vector<float>> parts{size_t(ranks)};
      comm::threads::run(ranks, std::chrono::seconds(20), [&](comm::Communicator& world) {
        // Rank 0 has ids 0 to 3 of both rows, rank 1 the others, a third rank none.
        const nn::Range held = world.rank() == 0   ? nn::Range{0, 4}
                               : world.rank() == 1 ? nn::Range{4, 6}
                                                   : nn::Range{};
        parts[size_t(world.rank())] = cut_run(
            plan, kIds, &world,
            [&](const nn::Segments& all) {
              nn::Segments mine;
              for (const nn::Segment& s : all) {
                const nn::Range ids{std::max(s.ids.begin, held.begin),
                                    std::min(s.ids.end, held.end)};
                if (ids.size() > 0) mine.push_back({s.sequence, ids});
              }
              return mine;
            },
            fused);
      });
      std::vector<float> sum = parts[0];
      for (size_t r = 1; r < parts.size(); ++r)
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += parts[r][i];
      EXPECT_EQ(sum, whole) << plan << " on " << ranks << (fused ? ", fused" : "");
    }
  }
}

// 160 tokens in calls with these ends; fresh steps use a single call.
std::vector<float> adaptive_run(const std::vector<int64_t>& ends, int64_t* sent) {
  constexpr int kSteps = 5;
  const Plan plan = parse_plan("schedule=adaptive,budget=40");
  const auto layers = scheduled(plan, kSteps, ExpertExchange(nullptr, std::vector<int>(kExperts)));
  const auto weights = bank(kExperts, 1, DType::f32);
  std::vector<float> all;
  for (int s = 0; s < kSteps; ++s) {
    layers->begin_step({s, kSteps, plan.fresh(s, kSteps), false});
    const Tensor x = ops::blend(normal({160, 32}, 900), 1, normal({160, 32}, 901 + s), 0.02f);
    int64_t begin = 0;
    for (const int64_t end : plan.fresh(s, kSteps) ? std::vector<int64_t>{160} : ends) {
      const nn::TokenView view{-1, {0}, {}, {{0, {begin, end}}}};
      const auto y =
          layers->apply(0, view, x.slice(0, begin, end), router(kExperts, 2, 50), weights);
      const auto values = y.to_floats();
      all.insert(all.end(), values.begin(), values.end());
      begin = end;
    }
  }
  for (const nn::MoeEvent& event : layers->log().events()) *sent += event.assignments[0];
  return all;
}

TEST(ScheduledExchange, AdaptiveBudgetsAreOfBlocksSoThatCutsBetweenThemChangeNothing) {
  int64_t whole_sent = 0, sent = 0;
  const auto whole = adaptive_run({160}, &whole_sent);
  for (const std::vector<int64_t>& ends :
       {std::vector<int64_t>{64, 160}, {128, 160}, {64, 128, 160}}) {
    sent = 0;
    EXPECT_EQ(adaptive_run(ends, &sent), whole) << ends.size() << " calls";
    EXPECT_EQ(sent, whole_sent);
  }
  EXPECT_TRUE(adaptive_run({100, 160}, &sent) != whole) << "a block's parts have their own budgets";
}

TEST(ScheduledExchange, AdaptiveStarvesNoShortBlock) {
  const Plan plan = parse_plan("schedule=adaptive,budget=20");  // less than half of 2 assignments
  const auto layers = scheduled(plan, 5, ExpertExchange(nullptr, std::vector<int>(kExperts)));
  const auto weights = bank(kExperts, 1, DType::f32);
  for (int s = 0; s < 5; ++s) {
    layers->begin_step({s, 5, plan.fresh(s, 5), false});
    const Tensor x = ops::blend(normal({1, 32}, 900), 1, normal({1, 32}, 901 + s), 0.02f);
    layers->apply(0, {-1, {0}, {}, {{0, {64, 65}}}}, x, router(kExperts, 2, 50), weights);
  }
  for (const nn::MoeEvent& event : layers->log().events()) EXPECT_GE(event.assignments[0], 1);
}

TEST(ScheduledExchange, ATokenWithoutAResultIsAnError) {
  const Plan plan = parse_plan("schedule=displaced");
  const auto layers = scheduled(plan, 4, ExpertExchange(nullptr, std::vector<int>(kExperts)));
  const auto weights = bank(kExperts, 1, DType::f32);
  const auto apply = [&](int step, const nn::Range& ids) {
    layers->begin_step({step, 4, step == 0, false});
    const nn::TokenView part{0, {0}, {}, {{0, ids}}};
    layers->apply(0, part, normal({ids.size(), 32}, 3), router(kExperts, 2, 50), weights);
  };
  apply(0, {0, 3});
  EXPECT_THROW(apply(1, {2, 4}), Error);
}

}  // namespace
}  // namespace tessera::parallel

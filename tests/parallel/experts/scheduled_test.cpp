#include "parallel/experts/scheduled.h"

#include <gtest/gtest.h>

#include <map>

#include "nn/local.h"
#include "nn/random_bank.h"
#include "parallel/experts/kept_rows.h"

namespace tessera::parallel {
namespace {

using namespace nn::random_bank;

constexpr int kLayers = 3, kExperts = 4, kTokens = 6;

nn::Geometry geometry() {
  nn::Geometry g;
  g.blocks = kLayers;
  for (int b = 0; b < kLayers; ++b) g.experts.push_back({b, kExperts, 2, 16});
  return g;
}

struct Outcome {
  std::vector<std::vector<float>> outputs;  // step by step, layer by layer
  std::vector<ExpertEvent> events;
  int64_t kept = 0;
};

Tensor input(int step, int layer) {
  return normal({kTokens, 32}, uint32_t(1 + step * 100 + layer));
}

nn::TokenView view() {
  nn::TokenView v;
  v.rows = {0};
  v.body = {{0, {0, kTokens}}};
  return v;
}

Outcome run(const std::string& text, int steps, const std::function<void()>& travels = {}) {
  const Plan plan = parse_plan(text);
  const nn::Geometry g = geometry();
  ScheduledExperts experts(
      g, plan, steps, ExpertExchange(nullptr, std::vector<int>(kExperts)),
      [](int, int64_t id) { return uint32_t(id); }, travels);
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
  result.events = experts.events();
  result.kept = experts.peak_kept_bytes();
  return result;
}

std::vector<float> local(int step, int layer) {
  nn::LocalExperts experts;
  return experts
      .apply(layer, view(), input(step, layer), router(kExperts, 2, uint32_t(50 + layer)),
             bank(kExperts, uint32_t(1000 * layer + 1), DType::f32))
      .to_floats();
}

TEST(ScheduledExperts, SynchronousIsLocalBitForBit) {
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

TEST(ScheduledExperts, EventsSayWhatWasRead) {
  const Outcome got = run("schedule=displaced", 5);
  std::vector<int> lags;
  for (const ExpertEvent& event : got.events)
    if (event.layer == 1) lags.push_back(event.lag);
  EXPECT_EQ(lags, (std::vector<int>{0, 1, 2, 2, 2}));
  EXPECT_TRUE(got.events[2 * kLayers].sent);
  EXPECT_FALSE(got.events[3 * kLayers].sent) << "no step reads the last two results";
}

TEST(ScheduledExperts, InterweavedKeepsLessThanDisplaced) {
  for (const auto& [more, layers] :
       {std::pair<std::string, int>{"", 3}, {",sync=0", 2}, {",sync=0+2", 1}}) {
    const Outcome interweaved = run("schedule=interweaved" + more, 8);
    const Outcome displaced = run("schedule=displaced" + more, 8);
    EXPECT_LE(double(interweaved.kept), double(layers + 1) / (2 * layers) * double(displaced.kept))
        << more;
  }
  EXPECT_EQ(run("", 4).kept, 0) << "a synchronous schedule keeps nothing";
}

TEST(ScheduledExperts, SkippedSlotsAreOlder) {
  const Outcome got = run("schedule=interweaved,conditional=low,stride=4", 9);
  int oldest = 0;
  int64_t sent = 0, full = 0;
  for (const ExpertEvent& event : got.events) {
    oldest = std::max(oldest, event.oldest);
    sent += event.rows[0];
    full += 2 * kTokens;
  }
  EXPECT_LE(oldest, 1 + 3);
  EXPECT_LT(sent, full);
}

TEST(ScheduledExperts, AdaptiveKeepsItsBudget) {
  std::map<int, int64_t> ages;
  for (int budget : {0, 25, 60}) {
    const Outcome got = run("schedule=adaptive,budget=" + std::to_string(budget), 9);
    for (const ExpertEvent& event : got.events) {
      const int64_t all = 2 * kTokens, allowed = (budget * all + 50) / 100;
      EXPECT_EQ(event.lag, 0);
      EXPECT_EQ(event.rows[0], event.step == 0 ? all : std::max(allowed, event.changed));
      ages[budget] += event.oldest;
    }
    EXPECT_GT(got.kept, 0);
  }
  EXPECT_GT(ages[0], ages[60]) << "a larger budget refreshes what is oldest";
}

TEST(ScheduledExperts, AdaptiveRefreshesTheRowsThatMoved) {
  const nn::Geometry g = geometry();
  const Plan plan = parse_plan("schedule=adaptive,budget=50");
  ScheduledExperts experts(g, plan, 3, ExpertExchange(nullptr, std::vector<int>(kExperts)), {});
  const nn::Router route = router(kExperts, 2, 50);
  const nn::ExpertBank experts_of_layer = bank(kExperts, 1, DType::f32);
  const Tensor first = input(0, 0);
  std::vector<float> moved = first.to_floats();
  for (int64_t t = 1; t < kTokens; t += 2)
    for (int64_t c = 0; c < 32; ++c) moved[size_t(t * 32 + c)] *= 1.001f;
  const Tensor second = Tensor::from(std::span<const float>(moved), {kTokens, 32});
  nn::LocalExperts local;
  experts.begin_step({0, 3, true, false});
  experts.apply(0, view(), first, route, experts_of_layer);
  experts.begin_step({1, 3, false, false});
  const auto got = experts.apply(0, view(), second, route, experts_of_layer).to_floats();
  EXPECT_EQ(got, local.apply(0, view(), second, route, experts_of_layer).to_floats())
      << "half of the tokens stood still, so refreshing the other half is exact";
}

TEST(ScheduledExperts, SaysTwiceACallThatItsRowsTravel) {
  int waits = 0;
  const Outcome halves = run("schedule=staggered-batch", 3, [&] { ++waits; });
  EXPECT_EQ(waits, 2 * 3 * kLayers);
  EXPECT_EQ(halves.outputs, run("", 3).outputs);
  EXPECT_EQ(halves.kept, kTokens * 2 * (32 * 4 + 4)) << "the rows of one layer, and their experts";
}

TEST(ScheduledExperts, KeepsWhatThePlanForetells) {
  const RowSizes sizes{kLayers, 2, kTokens, 32 * 4};
  for (const char* plan :
       {"", "schedule=interweaved", "schedule=displaced", "schedule=interweaved,sync=0",
        "schedule=displaced,sync=deep,sync-every=3", "schedule=interweaved,warmup=3",
        "schedule=displaced,warmup=4,scores=latest", "schedule=adaptive",
        "schedule=adaptive,sync=1,sync-every=4", "schedule=interweaved,warmup=9"})
    for (int steps : {1, 2, 3, 9})
      EXPECT_EQ(run(plan, steps).kept, kept_row_bytes(parse_plan(plan), steps, sizes))
          << plan << ", " << steps << " steps";
  for (const char* plan : {"conditional=low", "schedule=interweaved,conditional=low",
                           "schedule=displaced,conditional=random,stride=3"}) {
    const int64_t kept = run(plan, 9).kept, most = kept_row_bytes(parse_plan(plan), 9, sizes);
    EXPECT_LE(kept, most) << plan;
    EXPECT_GT(2 * kept, most) << plan;
  }
}

}  // namespace
}  // namespace tessera::parallel

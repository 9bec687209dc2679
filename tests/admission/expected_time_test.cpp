#include "admission/expected_time.h"

#include <gtest/gtest.h>

namespace tessera::admission {
namespace {

TEST(ExpectedTime, CountsOpsByTheirRates) {
  const Rates rates{.products = 100, .attention = 10, .elements = 1000, .packing = 50};
  const diffusion::Work work{{"matmul", {1, 200, 7}},           // 2 s
                             {"experts", {1, 100, 7}},          // 1 s
                             {"conv2d", {1, 50, 7}},            // 0.5 s
                             {"attention", {1, 20, 7}},         // 2 s
                             {"biased_attention", {1, 10, 7}},  // 1 s
                             {"layer_norm", {1, 9e9, 500}}};    // 0.5 s
  EXPECT_DOUBLE_EQ(seconds_of(work, rates), 7);
}

TEST(ExpectedTime, AddsUpARun) {
  const Rates rates{.products = 100, .attention = 10, .elements = 1000, .packing = 50};
  RunNeed need;
  need.steps = 20;
  need.samples = 3;
  need.denoise.work = {{"matmul", {1, 200, 0}}};
  need.denoise.weights = 500;
  need.text.work = {{"matmul", {1, 100, 0}}};
  need.text.stored = 100;
  need.decode.work = {{"conv2d", {1, 400, 0}}};
  const ExpectedTime time = expected_time(need, rates);
  EXPECT_DOUBLE_EQ(time.text, 3);
  EXPECT_DOUBLE_EQ(time.load, 10);
  EXPECT_DOUBLE_EQ(time.step, 2);
  EXPECT_DOUBLE_EQ(time.decode, 12);
  EXPECT_DOUBLE_EQ(time.whole(), 65);
  EXPECT_EQ(time.sentence(),
            "about 2 s a step, 1 min 5 s in all (20 steps, text 3 s, loading 10 s, decoding 12 s)");
}

TEST(ExpectedTime, SpeaksOfHoursAndOfMoments) {
  EXPECT_EQ((ExpectedTime{.step = 0.0123, .steps = 1}).sentence(),
            "about 0.012 s a step, 0.012 s in all (1 step)");
  EXPECT_EQ((ExpectedTime{.step = 90, .steps = 50}).sentence(),
            "about 1 min 30 s a step, 1 h 15 min in all (50 steps)");
}

TEST(Rates, AreMeasured) {
  for (const auto dtype : {nn::DType::bf16, nn::DType::f32}) {
    const Rates rates = measure_rates(dtype);
    for (const double rate : {rates.products, rates.attention, rates.elements, rates.packing}) {
      EXPECT_GT(rate, 1e6);
      EXPECT_LT(rate, 1e16);
    }
  }
}

}  // namespace
}  // namespace tessera::admission

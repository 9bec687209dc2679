#include "ops/sampling.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::ops {
namespace {

using tensor::DType;

Tensor row(std::vector<float> values) {
  const int64_t n = static_cast<int64_t>(values.size());
  return Tensor::from(std::span<const float>(values), {1, n});
}

TEST(SamplingOps, ALinearStepReadsTheNewestEstimateFirst) {
  const std::vector<Tensor> earlier{row({9, 9}), row({40, 80}), row({100, 200}), row({10, 20})};
  const LinearStepCoefficients by{
      .from_x = 1, .from_out = -1, .x = 2, .estimates = {1, 1, 0.5, 2}, .noise = 3};
  const auto [next, estimate] =
      linear_step(row({5, 6}), row({1, 2, 8}), earlier, row({0, 1}), by, true);
  EXPECT_EQ(estimate.to_floats(), (std::vector<float>{4, 4}));
  EXPECT_EQ(next.to_floats(),
            (std::vector<float>{10 + 4 + 10 + 50 + 80, 12 + 4 + 20 + 100 + 160 + 3}));
  EXPECT_FALSE(linear_step(row({5}), row({1}), {}, {}, {.x = 1}, false).estimate.defined());
}

TEST(SamplingOps, ALinearStepMissesWhatItReads) {
  EXPECT_THROW(linear_step(row({1}), row({1}), {}, {}, {.noise = 1}, false), Error);
  EXPECT_THROW(linear_step(row({1}), row({1}), {}, {}, {.estimates = {0, 1, 0}}, false), Error);
  EXPECT_THROW(linear_step(row({1, 2}), row({1}), {}, {}, {.x = 1}, false), Error);
  EXPECT_THROW(linear_step(row({1, 2}), {}, {}, {}, {.x = 1}, false), Error);
  EXPECT_THROW(linear_step(row({1, 2}), row({1, 2}), {}, row({1}), {.noise = 1}, false), Error);
}

TEST(SamplingOps, ALearnedRangeReadsNoiseAndVariance) {
  const LearnedRangeCoefficients by{.recip = 2, .recipm1 = 1, .mean_x0 = 3, .mean_x = 4};
  // x0 is 2 * 5 - 1; both logarithms are zero.
  EXPECT_EQ(learned_range_step(row({5}), row({1, 0.5f}), {}, by).to_floats()[0], 3 * 9 + 4 * 5);
  EXPECT_EQ(learned_range_step(row({5}), row({1, 0.5f}), row({7}), by).to_floats()[0], 47 + 7);
  EXPECT_THROW(learned_range_step(row({5}), row({1}), {}, by), Error);
  EXPECT_THROW(learned_range_step(row({5}), row({1, 2, 3}), {}, by), Error);
}

TEST(SamplingOps, AFlowFollowsTheFirstColumns) {
  EXPECT_EQ(flow_step(row({1, 2}), row({4, -4, 9}), 0.5f).to_floats(), (std::vector<float>{-1, 4}));
  EXPECT_THROW(flow_step(row({1, 2}), row({4}), 0.5f), Error);
}

TEST(SamplingOps, GuidanceMovesAwayFromTheUnconditional) {
  EXPECT_EQ(guide(row({2, 4, 6}), row({1, 2, 3}), 3, 2).to_floats(), (std::vector<float>{4, 8, 6}));
  EXPECT_THROW(guide(row({1}), row({1, 2}), 2, 1), Error);
  EXPECT_THROW(guide(row({1}), row({1}), 2, 2), Error);
}

TEST(SamplingOps, OnMetaTheyAreCountedAsOnTheCpu) {
  const auto counted = [](const Tensor& x, const Tensor& wide) {
    tensor::Scope scope;
    scope.meter = std::make_shared<tensor::Meter>();
    const tensor::BindScope bind(scope);
    const std::vector<Tensor> earlier{x};
    const auto step = linear_step(x, wide, earlier, x, {.estimates = {1, 1}, .noise = 1}, true);
    EXPECT_EQ(step.next.shape(), x.shape());
    EXPECT_EQ(step.estimate.device(), x.device());
    EXPECT_EQ(learned_range_step(x, wide, x, {}).shape(), x.shape());
    EXPECT_EQ(flow_step(x, wide, 1).shape(), x.shape());
    EXPECT_EQ(guide(wide, wide, 2, 1).shape(), wide.shape());
    std::vector<double> numbers;
    for (const auto& [name, entry] : scope.meter->entries())
      numbers.insert(numbers.end(), {entry.flops, entry.bytes});
    return numbers;
  };
  const auto real = counted(Tensor::zeros({3, 4}, DType::f32), Tensor::zeros({3, 8}, DType::f32));
  const auto meta = counted(Tensor::empty({3, 4}, DType::f32, tensor::Device::meta),
                            Tensor::empty({3, 8}, DType::f32, tensor::Device::meta));
  EXPECT_EQ(real, meta);
  EXPECT_EQ(real.size(), 8u);
}

TEST(SamplingOps, TakeNoRowsAndOnlyFloatsOfTwoAxes) {
  const Tensor none = Tensor::empty({0, 4}, DType::f32);
  EXPECT_EQ(flow_step(none, none, 1).size(0), 0);
  EXPECT_EQ(guide(none, none, 1, 2).size(0), 0);
  const Tensor half = Tensor::zeros({1, 4}, DType::bf16);
  EXPECT_THROW(flow_step(half, half, 1), Error);
  EXPECT_THROW(guide(Tensor::zeros({4}, DType::f32), Tensor::zeros({4}, DType::f32), 1, 2), Error);
}

TEST(SamplingOps, APeakSaysWhatTheSoftmaxIs) {
  const std::vector<float> logits{1, 4, 9, 3};
  const Peak y = peak(logits, 2);
  EXPECT_EQ(y.index, 1);
  EXPECT_EQ(y.largest, 4.0f);
  EXPECT_NEAR(y.sum, std::exp(-3.0) + 1 + std::exp(-1.0), 1e-15);
  EXPECT_EQ(peak(logits, -1).index, 2);
}

}  // namespace
}  // namespace tessera::ops

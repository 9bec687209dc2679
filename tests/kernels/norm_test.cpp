#include "kernels/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/closeness.h"
#include "kernels/random_values.h"
#include "kernels/table.h"
#include "tensor/tensor.h"

namespace tessera::kernels {
namespace {

std::vector<float> normal(size_t count, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> draw(0.5f, 2);
  std::vector<float> x(count);
  for (float& v : x) v = draw(rng);
  return x;
}

// The result of the formula in f64.
std::vector<double> expected(const std::vector<float>& x, const NormArgs& a) {
  std::vector<double> y(x.size());
  const int64_t channels = a.groups * a.width;
  for (int64_t t = 0; t < a.tokens; ++t)
    for (int64_t g = 0; g < a.groups; ++g) {
      double mean = 0, square = 0;
      const size_t at = static_cast<size_t>(t * channels + g * a.width);
      for (size_t i = 0; i < size_t(a.width); ++i) mean += x[at + i] / double(a.width);
      if (!a.centred) mean = 0;
      for (size_t i = 0; i < size_t(a.width); ++i)
        square += (x[at + i] - mean) * (x[at + i] - mean);
      for (size_t i = 0; i < size_t(a.width); ++i) {
        const size_t channel = static_cast<size_t>(g * a.width) + i;
        double v = (x[at + i] - mean) / std::sqrt(square / double(a.width) + a.eps);
        if (a.weight) v = v * a.weight[i] + a.bias[i];
        const int64_t row = a.row_of ? a.row_of[t] : 0;
        if (a.scale)
          v = v * (1 + a.scale[row * a.scale_stride + int64_t(channel)]) +
              a.shift[row * a.shift_stride + int64_t(channel)];
        y[at + i] = v;
      }
    }
  return y;
}

class Norm : public testing::TestWithParam<Isa> {};

TEST_P(Norm, IsTheFormulaAtOddSizes) {
  for (int64_t width : {1, 7, 16, 33, 72, 1152})
    for (int64_t groups : {1, 3})
      for (bool centred : {true, false}) {
        const int64_t tokens = 5, channels = groups * width;
        const auto x = normal(size_t(tokens * channels), 1), w = normal(size_t(width), 2),
                   b = normal(size_t(width), 3), s = normal(size_t(2 * channels), 4);
        const std::vector<int32_t> rows{0, 1, 1, 0, 1};
        std::vector<float> y(x.size());
        NormArgs a{.x = x.data(),
                   .x_stride = channels,
                   .y = y.data(),
                   .y_stride = channels,
                   .tokens = tokens,
                   .groups = groups,
                   .width = width,
                   .centred = centred,
                   .weight = w.data(),
                   .bias = b.data(),
                   .shift = s.data(),
                   .scale = s.data(),
                   .shift_stride = channels,
                   .scale_stride = channels,
                   .row_of = rows.data()};
        cpu_table(GetParam()).norm(a);
        const auto right = expected(x, a);
        for (size_t i = 0; i < y.size(); ++i)
          ASSERT_NEAR(y[i], right[i], 1e-4 * (1 + std::abs(right[i]))) << width << " at " << i;
      }
}

TEST_P(Norm, ARowDoesNotDependOnTheOthersAndBf16Rounds) {
  const int64_t width = 45, tokens = 9;
  std::vector<tensor::BFloat16> x, y(size_t{width * tokens}), alone(size_t{width});
  for (float v : normal(size_t(width * tokens), 9)) x.push_back(tensor::to_bfloat16(v));
  NormArgs a{.x = x.data(),
             .x_stride = width,
             .y = y.data(),
             .y_stride = width,
             .dtype = tensor::DType::bf16,
             .tokens = tokens,
             .width = width};
  cpu_table(GetParam()).norm(a);
  a.x = x.data() + 4 * width;
  a.y = alone.data();
  a.tokens = 1;
  cpu_table(GetParam()).norm(a);
  for (size_t i = 0; i < size_t(width); ++i)
    EXPECT_EQ(alone[i].bits, y[4 * size_t(width) + i].bits);
}

TEST_P(Norm, EveryTypeEqualsTheReference) {
  for (tensor::DType dtype : {tensor::DType::f32, tensor::DType::bf16, tensor::DType::f16})
    for (int64_t width : {1, 40, 64, 129}) {
      const tensor::Tensor x = random_tensor({3, width}, dtype, 1, 2);
      const auto made = [&](Isa isa) {
        const tensor::Tensor y = tensor::Tensor::zeros(x.shape(), dtype);
        cpu_table(isa).norm({.x = x.raw(),
                             .x_stride = width,
                             .y = y.raw(),
                             .y_stride = width,
                             .dtype = dtype,
                             .tokens = 3,
                             .width = width,
                             .eps = 1e-3f});
        return y;
      };
      EXPECT_LT(worst_difference(made(GetParam()), made(Isa::reference)), tolerance(dtype))
          << tensor::name_of(dtype) << " " << width;
    }
}

INSTANTIATE_TEST_SUITE_P(Isas, Norm, testing::ValuesIn([] {
                           const IsaList all = available_isas();
                           return std::vector<Isa>(all.begin(), all.end());
                         }()));

}  // namespace
}  // namespace tessera::kernels

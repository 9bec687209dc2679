#include "ops/biased_attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/elementwise.h"
#include "tessera/error.h"

namespace tessera::ops {
namespace {

using tensor::DType;

Tensor wave(const tensor::Shape& shape, float phase) {
  Tensor x = Tensor::empty(shape, DType::f32);
  for (int64_t i = 0; i < x.elements(); ++i)
    x.data<float>()[i] = std::sin(phase + 0.7f * static_cast<float>(i));
  return x;
}

// The formula, in double.
std::vector<double> plain(const Tensor& q, const Tensor& k, const Tensor& v, int heads,
                          const Tensor& bias, int64_t visible) {
  const int64_t n = q.size(0), dim = q.size(1) / heads;
  std::vector<double> out(static_cast<size_t>(n * q.size(1)), 0);
  for (int h = 0; h < heads; ++h)
    for (int64_t t = 0; t < n; ++t) {
      std::vector<double> p;
      double sum = 0;
      for (int64_t s = 0; s < visible; ++s) {
        double score = bias.row<float>(h)[s - t + n - 1];
        for (int64_t c = 0; c < dim; ++c)
          score += double(q.row<float>(t)[h * dim + c]) * double(k.row<float>(s)[h * dim + c]);
        p.push_back(std::exp(score));
        sum += p.back();
      }
      for (int64_t s = 0; s < visible; ++s)
        for (int64_t c = 0; c < dim; ++c)
          out[static_cast<size_t>(t * q.size(1) + h * dim + c)] +=
              p[static_cast<size_t>(s)] / sum * double(v.row<float>(s)[h * dim + c]);
    }
  return out;
}

TEST(BiasedAttention, IsTheFormula) {
  for (const int64_t tokens : {1, 7, 33})
    for (const int64_t visible : {int64_t{0}, int64_t{1}, tokens}) {
      const Tensor fused = wave({tokens, 3 * 20}, 1), bias = wave({2, 2 * tokens - 1}, 5);
      const Tensor q = fused.slice(1, 0, 20), k = fused.slice(1, 20, 40),
                   v = fused.slice(1, 40, 60);
      const auto want = plain(q, k, v, 2, bias, visible);
      const auto got = biased_attention(q, k, v, 2, bias, visible).to_floats();
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5) << i;
      const auto half = [](const Tensor& x) { return cast(x, DType::bf16); };
      const Tensor rough = biased_attention(half(q), half(k), half(v), 2, bias, visible);
      EXPECT_EQ(rough.dtype(), DType::bf16);
      const auto near = rough.to_floats();
      for (size_t i = 0; i < near.size(); ++i) ASSERT_NEAR(near[i], want[i], 0.05) << i;
    }
}

TEST(BiasedAttention, TakesShapesAndRefusesOthers) {
  const Tensor x = Tensor::empty({4, 8}, DType::bf16, tensor::Device::meta);
  const Tensor bias = Tensor::empty({2, 7}, DType::f32, tensor::Device::meta);
  EXPECT_EQ(biased_attention(x, x, x, 2, bias, 4).shape(), x.shape());
  EXPECT_THROW(biased_attention(x, x, x, 3, bias, 4), Error);
  EXPECT_THROW(biased_attention(x, x, x, 2, bias, 5), Error);
  EXPECT_THROW(biased_attention(x, x, x.slice(0, 0, 3), 2, bias, 3), Error);
  EXPECT_THROW(biased_attention(x, x, x, 2, bias.slice(1, 0, 6), 4), Error);
}

}  // namespace
}  // namespace tessera::ops

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/avx512/product.h"
#include "kernels/random_values.h"

#if defined(__x86_64__)
namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr double kLargest = 32639;

Tensor product(const Tensor& x, const PackedWeight& w) {
  Tensor y = Tensor::empty({x.size(0), w.n}, DType::f32);
  avx512::multiply(avx512::digit_engine(), {.x = x.raw(),
                                            .x_dtype = x.dtype(),
                                            .x_stride = x.stride(0),
                                            .rows = x.size(0),
                                            .weight = &w,
                                            .epilogue = {},
                                            .y = y.raw(),
                                            .y_dtype = DType::f32,
                                            .y_stride = w.n});
  return y;
}

class DigitProducts : public testing::Test {
 protected:
  void SetUp() override {
    if (detected_isa() < Isa::avx512) GTEST_SKIP() << "this CPU has no AVX-512 with VNNI";
  }
};

// Each element of a row is off by half of 1 / 32,639 of the row's largest magnitude at most.
TEST_F(DigitProducts, AreThoseOfTheQuantisedWeightsWithinTheRoundingOfRows) {
  for (auto [rows, n, k] : {std::array<int64_t, 3>{1, 1, 1}, {8, 33, 64}, {23, 70, 200}}) {
    const Tensor w = random_tensor({n, k}, DType::f32, 1),
                 x = random_tensor({rows, k}, DType::f32, 2);
    const PackedWeight small = pack_weight(w, {}, DType::i8, Isa::avx512);
    const PackedWeight plain = pack_weight(w, {}, DType::i8, Isa::reference);
    const Tensor got = product(x, small);
    for (int64_t r = 0; r < rows; ++r) {
      double largest = 0;
      for (int64_t i = 0; i < k; ++i)
        largest = std::max(largest, std::abs(double{x.row<float>(r)[i]}));
      for (int64_t c = 0; c < n; ++c) {
        double want = 0, weights = 0;
        for (int64_t i = 0; i < k; ++i) {
          const double weight =
              plain.data.row<int8_t>(c)[i] * double{plain.scales.data<float>()[c]};
          want += double{x.row<float>(r)[i]} * weight;
          weights += std::abs(weight);
        }
        EXPECT_NEAR(got.row<float>(r)[c], want, 0.51 * largest / kLargest * weights + 1e-6)
            << rows << "x" << n << "x" << k;
      }
    }
  }
}

TEST_F(DigitProducts, SumsOfTheLargestNumbersDoNotOverflow) {
  const int64_t k = 65536;
  for (float sign : {1.0f, -1.0f}) {
    const std::vector<float> ones(static_cast<size_t>(k), 1.0f),
        others(static_cast<size_t>(k), sign);
    const PackedWeight w =
        pack_weight(Tensor::from(std::span<const float>(ones), {1, k}), {}, DType::i8, Isa::avx512);
    const Tensor y = product(Tensor::from(std::span<const float>(others), {1, k}), w);
    EXPECT_NEAR(y.row<float>(0)[0], sign * static_cast<float>(k), 0.1f);
  }
}

TEST_F(DigitProducts, RowsOfZerosAndOfNoNumbersAreSo) {
  const PackedWeight w =
      pack_weight(random_tensor({40, 70}, DType::f32, 1), {}, DType::i8, Isa::avx512);
  const Tensor x = random_tensor({5, 70}, DType::f32, 2);
  std::fill_n(x.row<float>(0), 70, 0.0f);
  std::fill_n(x.row<float>(1), 70, 1e-42f);
  x.row<float>(2)[3] = std::nanf("");
  x.row<float>(3)[69] = std::numeric_limits<float>::infinity();
  const Tensor y = product(x, w);
  for (int64_t c = 0; c < 40; ++c) {
    EXPECT_EQ(y.row<float>(0)[c], 0);
    EXPECT_NEAR(y.row<float>(1)[c], 0, 1e-30);
    EXPECT_TRUE(std::isnan(y.row<float>(2)[c]));
    EXPECT_TRUE(std::isnan(y.row<float>(3)[c]));
    EXPECT_TRUE(std::isfinite(y.row<float>(4)[c]));
  }
}

}  // namespace
}  // namespace tessera::kernels
#endif

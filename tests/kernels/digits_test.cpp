#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/avx2/product.h"
#include "kernels/avx512/product.h"
#include "kernels/engine_product.h"
#include "kernels/random_values.h"

#if defined(__x86_64__)
namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr double kLargest = 32639;

struct Numbers {
  const char* name;
  Isa least;
  bool avx_vnni;
  const wide::Engine& (*engine)();
};
void PrintTo(const Numbers& one, std::ostream* out) { *out << one.name; }

class DigitProducts : public testing::TestWithParam<Numbers> {
 protected:
  void SetUp() override {
    if (detected_isa() < GetParam().least || (GetParam().avx_vnni && !has_avx_vnni()))
      GTEST_SKIP() << "this CPU lacks " << GetParam().name;
  }
  static Tensor product(const Tensor& x, const PackedWeight& w) {
    return kernels::product(GetParam().engine(), x, w);
  }
};
INSTANTIATE_TEST_SUITE_P(
    Engines, DigitProducts,
    testing::Values(Numbers{"avx512", Isa::avx512, false, avx512::digit_engine},
                    Numbers{"avx2", Isa::avx2, false,
                            []() -> const wide::Engine& { return avx2::digit_engine(false); }},
                    Numbers{"avx_vnni", Isa::avx2, true,
                            []() -> const wide::Engine& { return avx2::digit_engine(true); }}),
    [](const auto& one) { return one.param.name; });

// Each element of a row is off by half of 1 / 32,639 of the row's largest magnitude at most.
TEST_P(DigitProducts, AreThoseOfTheQuantisedWeightsWithinTheRoundingOfRows) {
  for (auto [rows, n, k] : {std::array<int64_t, 3>{1, 1, 1}, {8, 33, 64}, {23, 70, 200}}) {
    const Tensor w = random_tensor({n, k}, DType::f32, 1),
                 x = random_tensor({rows, k}, DType::f32, 2);
    const PackedWeight small = pack_weight(w, {}, DType::i8, Isa::avx2);
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

TEST_P(DigitProducts, SumsOfTheLargestNumbersDoNotOverflow) {
  const int64_t k = 65536;
  for (float sign : {1.0f, -1.0f}) {
    const std::vector<float> ones(static_cast<size_t>(k), 1.0f),
        others(static_cast<size_t>(k), sign);
    const PackedWeight w =
        pack_weight(Tensor::from(std::span<const float>(ones), {1, k}), {}, DType::i8, Isa::avx2);
    const Tensor y = product(Tensor::from(std::span<const float>(others), {1, k}), w);
    EXPECT_NEAR(y.row<float>(0)[0], sign * static_cast<float>(k), 0.1f);
  }
}

TEST_P(DigitProducts, RowsOfZerosAndOfNoNumbersAreSo) {
  const PackedWeight w =
      pack_weight(random_tensor({40, 70}, DType::f32, 1), {}, DType::i8, Isa::avx2);
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

// The unit adds with other instructions but in the same order.
TEST(AvxVnni, HasTheBitsOfAvx2) {
  if (!has_avx_vnni()) GTEST_SKIP() << "this CPU has no AVX-VNNI";
  const int64_t rows = 23, n = 70, k = 1100;
  const PackedWeight w =
      pack_weight(random_tensor({n, k}, DType::f32, 1), {}, DType::i8, Isa::avx2);
  const Tensor x = random_tensor({rows, k}, DType::f32, 2),
               plain = Tensor::empty({rows, n}, DType::f32),
               vnni = Tensor::empty({rows, n}, DType::f32);
  for (const auto& [with, y] : {std::pair{false, &plain}, {true, &vnni}})
    wide::multiply(avx2::digit_engine(with), {.x = x.raw(),
                                              .x_dtype = DType::f32,
                                              .x_stride = k,
                                              .rows = rows,
                                              .weight = &w,
                                              .epilogue = {},
                                              .y = y->raw(),
                                              .y_dtype = DType::f32,
                                              .y_stride = n});
  EXPECT_EQ(plain.to_floats(), vnni.to_floats());
}

}  // namespace
}  // namespace tessera::kernels
#endif

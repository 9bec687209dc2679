#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/avx2/product.h"
#include "kernels/avx512/product.h"
#include "kernels/engine_product.h"
#include "kernels/nibbles.h"
#include "kernels/random_values.h"
#include "kernels/table.h"

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

struct Problem {
  int64_t rows, n, k;
};
// Tails of all kinds, and more steps than a chunk of a panel if many groups share a chunk.
constexpr Problem kProblems[] = {{1, 1, 2},   {1, 40, 64},   {3, 33, 66},
                                 {8, 96, 64}, {23, 70, 200}, {100, 64, 1700}};

PackedWeight weight(const Problem& p, bool int4, Isa isa, bool paired = false) {
  const auto stored = [&](int seed) -> StoredMatrix {
    const Tensor w = random_tensor({p.n, p.k}, DType::f32, seed);
    return int4 ? quantise_groups(w) : quantise_rows(w);
  };
  PackedWeight packed = pack_weight(stored(1), paired ? stored(2) : StoredMatrix{}, DType::i8, isa);
  packed.int8_rows = true;
  return packed;
}

Tensor product_of(void (*kernel)(const MatmulArgs&), const Tensor& x, const PackedWeight& w,
                  Activation activation = Activation::none) {
  Tensor y = Tensor::empty({x.size(0), w.n}, DType::f32);
  kernel({.x = x.raw(),
          .x_dtype = x.dtype(),
          .x_stride = x.stride(0),
          .rows = x.size(0),
          .weight = &w,
          .epilogue = {.activation = activation},
          .y = y.raw(),
          .y_dtype = DType::f32,
          .y_stride = w.n});
  return y;
}

// By the plain rule: whole numbers of the row and of the weights, and both scales.
double plain(const Tensor& x, int64_t r, const StoredMatrix& w, int64_t c) {
  const std::vector<float> row = x.slice(0, r, r + 1).to_floats();
  float largest = 0;
  for (const float v : row) largest = std::max(largest, std::fabs(v));
  double sum = 0;
  for (int64_t i = 0; i < x.size(1); ++i) {
    const double whole = std::nearbyint(row[static_cast<size_t>(i)] * (127 / largest));
    sum +=
        whole *
        (holds_nibbles(w)
             ? nibble(w.values.row<uint8_t>(c), i) *
                   double{tensor::to_float(w.scales.row<tensor::BFloat16>(c)[i / kGroupElements])}
             : w.values.row<int8_t>(c)[i] * double{w.scales.data<float>()[c]});
  }
  return sum * double{largest} / 127;
}

TEST(Int8Rows, TheReferenceIsThePlainRule) {
  for (const bool int4 : {false, true})
    for (const Problem& p : kProblems) {
      const Tensor w = random_tensor({p.n, p.k}, DType::f32, 1),
                   x = random_tensor({p.rows, p.k}, DType::bf16, 3);
      const StoredMatrix stored = int4 ? quantise_groups(w) : quantise_rows(w);
      const Tensor y = product_of(reference::matmul, x, weight(p, int4, Isa::reference));
      for (int64_t r = 0; r < p.rows; ++r)
        for (int64_t c = 0; c < p.n; ++c)
          ASSERT_NEAR(y.row<float>(r)[c], plain(x, r, stored, c), 1e-5 * std::sqrt(double(p.k)))
              << int4 << " " << p.rows << "x" << p.n << "x" << p.k;
    }
}

// Integer sums are equal everywhere; later operations are f32.
TEST(Int8Rows, EveryInstructionSetIsNearTheReference) {
  for (const Isa isa : available_isas())
    for (const bool int4 : {false, true})
      for (const bool paired : {false, true})
        for (const DType type : {DType::f32, DType::bf16, DType::f16})
          for (const Problem& p : kProblems) {
            const Activation activation = paired ? Activation::swiglu : Activation::gelu_tanh;
            const Tensor x = random_tensor({p.rows, p.k}, type, 3, 0.1f);
            const Tensor want = product_of(reference::matmul, x,
                                           weight(p, int4, Isa::reference, paired), activation);
            const Tensor got =
                product_of(cpu_table(isa).matmul, x, weight(p, int4, isa, paired), activation);
            for (int64_t r = 0; r < p.rows; ++r)
              for (int64_t c = 0; c < p.n; ++c)
                ASSERT_NEAR(got.row<float>(r)[c], want.row<float>(r)[c],
                            3e-6 * double(p.k) * (paired ? 0.1 : 0.02) + 1e-5)
                    << name_of(isa) << int4 << paired << " " << p.rows << "x" << p.n << "x" << p.k;
          }
}

TEST(Int8Rows, ARowDoesNotDependOnTheOthers) {
  const Problem p{100, 96, 1700};
  for (const Isa isa : available_isas())
    for (const bool int4 : {false, true}) {
      const Tensor x = random_tensor({p.rows, p.k}, DType::bf16, 3);
      const PackedWeight w = weight(p, int4, isa);
      const Tensor all = product_of(cpu_table(isa).matmul, x, w);
      for (const int64_t r : {0, 1, 13, 14, 57, 99}) {
        const Tensor one = product_of(cpu_table(isa).matmul, x.slice(0, r, r + 1), w);
        EXPECT_EQ(one.to_floats(), all.slice(0, r, r + 1).to_floats()) << name_of(isa) << r;
      }
    }
}

TEST(Int8Rows, RowsOfZerosAndOfNoNumbersAreSo) {
  for (const Isa isa : available_isas())
    for (const bool int4 : {false, true}) {
      const PackedWeight w = weight({5, 40, 70}, int4, isa);
      const Tensor x = random_tensor({5, 70}, DType::f32, 2);
      std::fill_n(x.row<float>(0), 70, 0.0f);
      std::fill_n(x.row<float>(1), 70, 1e-42f);
      x.row<float>(2)[3] = std::nanf("");
      x.row<float>(3)[69] = std::numeric_limits<float>::infinity();
      const Tensor y = product_of(cpu_table(isa).matmul, x, w);
      for (int64_t c = 0; c < 40; ++c) {
        EXPECT_EQ(y.row<float>(0)[c], 0);
        EXPECT_NEAR(y.row<float>(1)[c], 0, 1e-30);
        EXPECT_TRUE(std::isnan(y.row<float>(2)[c])) << name_of(isa);
        EXPECT_TRUE(std::isnan(y.row<float>(3)[c])) << name_of(isa);
        EXPECT_TRUE(std::isfinite(y.row<float>(4)[c]));
      }
    }
}

#if defined(__x86_64__)
struct Numbers {
  const char* name;
  Isa least;
  bool avx_vnni;
  const wide::Engine& (*engine)();
};

class Int8Engines : public testing::TestWithParam<Numbers> {
 protected:
  void SetUp() override {
    if (detected_isa() < GetParam().least || (GetParam().avx_vnni && !has_avx_vnni()))
      GTEST_SKIP() << "this CPU lacks " << GetParam().name;
  }
};
INSTANTIATE_TEST_SUITE_P(
    All, Int8Engines,
    testing::Values(Numbers{"avx512", Isa::avx512, false, avx512::int8_engine},
                    Numbers{"avx2", Isa::avx2, false,
                            []() -> const wide::Engine& { return avx2::int8_engine(false); }},
                    Numbers{"avx_vnni", Isa::avx2, true,
                            []() -> const wide::Engine& { return avx2::int8_engine(true); }}),
    [](const auto& one) { return one.param.name; });

TEST_P(Int8Engines, SumsOfTheLargestNumbersDoNotOverflow) {
  const int64_t k = 65536;
  for (const float sign : {1.0f, -1.0f}) {
    const std::vector<float> ones(static_cast<size_t>(k), 1.0f),
        others(static_cast<size_t>(k), sign);
    const PackedWeight w =
        pack_weight(Tensor::from(std::span<const float>(ones), {1, k}), {}, DType::i8, Isa::avx2);
    const Tensor y =
        product(GetParam().engine(), Tensor::from(std::span<const float>(others), {1, k}), w);
    EXPECT_NEAR(y.row<float>(0)[0], sign * static_cast<float>(k), 0.1f);
  }
}
#endif

}  // namespace
}  // namespace tessera::kernels

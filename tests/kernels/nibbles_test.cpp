#include "kernels/nibbles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/avx2/product.h"
#include "kernels/avx512/product.h"
#include "kernels/closeness.h"
#include "kernels/engine_product.h"
#include "kernels/random_values.h"
#include "kernels/table.h"
#include "tessera/error.h"

namespace tessera::kernels {
namespace {

using tensor::BFloat16;
using tensor::DType;
using tensor::Tensor;

float scale_of(const StoredMatrix& w, int64_t row, int64_t i) {
  return tensor::to_float(w.scales.row<BFloat16>(row)[i / kGroupElements]);
}

float value_of(const StoredMatrix& w, int64_t row, int64_t i) {
  return static_cast<float>(nibble(w.values.row<uint8_t>(row), i)) * scale_of(w, row, i);
}

// The place of element i of a column in the panel layout.
int panel_nibble(const PackedWeight& w, int64_t panel, int64_t tile, int64_t column, int64_t i) {
  const int64_t at = (panel * panel_shape(w).steps + i / 64) * kNibbleStepBytes +
                     i % 64 / 4 * kTileColumns * 4 + column * 4 + i % 4;
  const int four = w.data.data<uint8_t>()[at] >> (4 * tile) & 15;
  return (four ^ 8) - 8;
}

float panel_scale(const PackedWeight& w, int64_t panel, int64_t column, int64_t i) {
  const std::byte* const at = w.data.data<std::byte>() +
                              (panel * panel_shape(w).steps + i / 64) * kNibbleStepBytes +
                              kNibbleBytes;
  return tensor::to_float(
      reinterpret_cast<const BFloat16*>(at)[i % 64 / kGroupElements * kPanelColumns + column]);
}

// No scale puts the largest element nearer than 0.6875 of an eighth; elements without clipping are
// within half a scale.
TEST(Nibbles, EachElementIsTheNearestOfItsGroupsNumbers) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Tensor w = random_tensor({5, 70}, dtype, 1);
    const StoredMatrix q = quantise_groups(w);
    EXPECT_EQ(q.values.shape(), (tensor::Shape{5, 35}));
    EXPECT_EQ(q.scales.shape(), (tensor::Shape{5, 3}));
    const std::vector<float> values = w.to_floats();
    for (int64_t r = 0; r < 5; ++r)
      for (int64_t i = 0; i < 70; ++i) {
        const float value = values[static_cast<size_t>(r * 70 + i)], scale = scale_of(q, r, i);
        float nearest = std::numeric_limits<float>::infinity();
        for (int whole = -8; whole < 8; ++whole)
          nearest = std::min(nearest, std::abs(static_cast<float>(whole) * scale - value));
        EXPECT_NEAR(std::abs(value_of(q, r, i) - value), nearest, 1e-5f) << r << " " << i;
      }
  }
}

// For normal values. An eighth of the largest element as the scale leaves 0.0859.
TEST(Nibbles, TheErrorIsWhatThePageSays) {
  const Tensor w = random_tensor({64, 512}, DType::f32, 7);
  const StoredMatrix q = quantise_groups(w);
  const double error = relative_error(q, w);
  EXPECT_NEAR(error, 0.0813, 0.001);
  double errors = 0, squares = 0;
  for (int64_t r = 0; r < 64; ++r)
    for (int64_t i = 0; i < 512; ++i) {
      errors += std::pow(value_of(q, r, i) - w.row<float>(r)[i], 2);
      squares += std::pow(w.row<float>(r)[i], 2);
    }
  EXPECT_NEAR(error, std::sqrt(errors / squares), 1e-6);
  EXPECT_EQ(relative_error(quantise_groups(Tensor::zeros({2, 4}, DType::f32)),
                           Tensor::zeros({2, 4}, DType::f32)),
            0);
}

// With equal bits: groups of 64 with a bf16 minimum and a bf16 step, the best of 17.
TEST(Nibbles, AZeroPointDoesNotPay) {
  const Tensor w = random_tensor({64, 512}, DType::f32, 7);
  const auto rounded = [](float x) { return tensor::to_float(tensor::to_bfloat16(x)); };
  double errors = 0, squares = 0;
  for (int64_t first = 0; first < w.elements(); first += 64) {
    const float* x = w.data<float>() + first;
    const auto [low, high] = std::minmax_element(x, x + 64);
    double least = INFINITY;
    for (int i = 0; i < 17; ++i) {
      const float step = rounded((*high - *low) / 15 * (0.7f + 0.35f * static_cast<float>(i) / 16)),
                  from = rounded((*high + *low) / 2 - 7.5f * step);
      double error = 0;
      for (int64_t j = 0; j < 64; ++j) {
        const float whole = std::clamp(std::nearbyint((x[j] - from) / step), 0.0f, 15.0f);
        error += std::pow(double{whole * step + from} - x[j], 2);
      }
      least = std::min(least, error);
    }
    errors += least;
    for (int64_t j = 0; j < 64; ++j) squares += std::pow(double{x[j]}, 2);
  }
  EXPECT_NEAR(std::sqrt(errors / squares), 0.0856, 0.001);
  EXPECT_GT(std::sqrt(errors / squares), 1.03 * relative_error(quantise_groups(w), w));
}

TEST(Nibbles, GroupsOfZerosOfTheLargestNumbersAndOfNone) {
  Tensor w = random_tensor({6, 64}, DType::f32, 1);
  std::fill_n(w.row<float>(0), 32, 0.0f);
  std::fill_n(w.row<float>(1), 32, 1e-40f);
  for (int64_t i = 0; i < 32; ++i) w.row<float>(2)[i] = i % 2 ? 3e38f : -3e38f;
  w.row<float>(3)[5] = std::nanf("");
  w.row<float>(4)[40] = INFINITY;
  const StoredMatrix q = quantise_groups(w);
  for (const int64_t row : {0, 1}) {
    EXPECT_EQ(scale_of(q, row, 0), 0);
    EXPECT_EQ(nibble(q.values.row<uint8_t>(row), 3), 0);
    EXPECT_GT(std::abs(scale_of(q, row, 32)), 0);
  }
  EXPECT_NEAR(value_of(q, 2, 0), -3e38f, 2e36f);
  EXPECT_NEAR(value_of(q, 2, 1), 2.625e38f, 2e36f);
  EXPECT_TRUE(std::isnan(scale_of(q, 3, 0)));
  EXPECT_FALSE(std::isnan(scale_of(q, 3, 32)));
  EXPECT_TRUE(std::isnan(scale_of(q, 4, 32)));
  EXPECT_FALSE(std::isnan(scale_of(q, 5, 0)));
}

TEST(Nibbles, PanelsHoldEveryElementAndItsScaleAndZeros) {
  for (const bool paired : {false, true}) {
    const StoredMatrix w = quantise_groups(random_tensor({45, 102}, DType::f32, 1)),
                       up = quantise_groups(random_tensor({45, 102}, DType::f32, 2));
    const PackedWeight packed =
        pack_weight(w, paired ? up : StoredMatrix(), DType::i8, Isa::avx512);
    EXPECT_TRUE(packed.int4);
    EXPECT_EQ(packed.n, 45);
    EXPECT_EQ(packed.k, 102);
    const PanelShape shape = panel_shape(packed);
    EXPECT_EQ(packed.bytes(), shape.panels * 2 * kNibbleStepBytes);
    for (int64_t panel = 0; panel < shape.panels; ++panel)
      for (int64_t c = 0; c < kPanelColumns; ++c) {
        const int64_t tile = c / kTileColumns;
        const StoredMatrix& from = paired && tile == 1 ? up : w;
        const int64_t row = panel * shape.columns + (paired ? c % kTileColumns : c);
        for (int64_t i = 0; i < 128; ++i) {
          const bool there = row < 45 && i < 102, group = row < 45;
          EXPECT_EQ(panel_nibble(packed, panel, tile, c % kTileColumns, i),
                    there ? nibble(from.values.row<uint8_t>(row), i) : 0);
          EXPECT_EQ(panel_scale(packed, panel, c, i), group ? scale_of(from, row, i) : 0);
        }
      }
  }
}

TEST(Nibbles, TheReferenceKeepsThemAsTheyAreStored) {
  const StoredMatrix w = quantise_groups(random_tensor({3, 40}, DType::f32, 1)),
                     up = quantise_groups(random_tensor({3, 40}, DType::f32, 2));
  const PackedWeight packed = pack_weight(w, up, DType::i8, Isa::reference);
  EXPECT_TRUE(same_bits(packed.data.slice(0, 3, 6), up.values));
  EXPECT_TRUE(same_bits(packed.scales.slice(0, 0, 3), w.scales));
  const StoredMatrix meta(Tensor::empty({3, 20}, DType::u8, tensor::Device::meta),
                          Tensor::empty({3, 2}, DType::bf16, tensor::Device::meta));
  for (Isa isa : {Isa::reference, Isa::avx2}) {
    const PackedWeight expected = pack_weight(meta, meta, DType::i8, isa);
    EXPECT_TRUE(expected.data.is_meta());
    EXPECT_EQ(expected.bytes(), pack_weight(w, up, DType::i8, isa).bytes());
  }
}

TEST(Nibbles, RefusesWhatItCannotPack) {
  const Tensor w = random_tensor({4, 64}, DType::f32, 1);
  const StoredMatrix q = quantise_groups(w),
                     other = quantise_groups(random_tensor({4, 62}, DType::f32, 1));
  EXPECT_THROW(quantise_groups(random_tensor({4, 3}, DType::f32, 1)), Error);
  EXPECT_THROW(quantise_groups(Tensor::zeros({4, 4}, DType::i8)), Error);
  for (Isa isa : {Isa::reference, Isa::avx2}) {
    EXPECT_THROW(pack_weight(q, {}, DType::bf16, isa), Error);
    EXPECT_THROW(pack_weight(q, other, DType::i8, isa), Error);
    EXPECT_THROW(pack_weight(q, quantise_rows(w), DType::i8, isa), Error);
    EXPECT_THROW(pack_weight(quantise_rows(w), q, DType::i8, isa), Error);
    EXPECT_THROW(pack_weight({q.values, Tensor()}, {}, DType::i8, isa), Error);
    EXPECT_THROW(pack_weight({q.values, Tensor::zeros({4, 1}, DType::bf16)}, {}, DType::i8, isa),
                 Error);
    EXPECT_THROW(pack_weight({q.values, Tensor::zeros({4, 2}, DType::f32)}, {}, DType::i8, isa),
                 Error);
  }
}

#if defined(__x86_64__)
struct Engines {
  const char* name;
  const wide::Engine& engine;
};

std::vector<Engines> engines() {
  std::vector<Engines> all;
  if (detected_isa() >= Isa::avx2) all.push_back({"avx2", avx2::nibble_engine(false)});
  if (has_avx_vnni()) all.push_back({"avx_vnni", avx2::nibble_engine(true)});
  if (detected_isa() >= Isa::avx512) all.push_back({"avx512", avx512::nibble_engine()});
  return all;
}

// Each element of a row is off by half of 1 / 32,639 of the row's largest magnitude at most.
TEST(NibbleProducts, AreThoseOfTheWeightsWithinTheRoundingOfRowsInTheSameBits) {
  for (auto [rows, n, k] : {std::array<int64_t, 3>{1, 1, 2}, {8, 33, 64}, {23, 70, 200}}) {
    const StoredMatrix w = quantise_groups(random_tensor({n, k}, DType::f32, 1));
    const Tensor x = random_tensor({rows, k}, DType::f32, 2);
    const PackedWeight packed = pack_weight(w, {}, DType::i8, Isa::avx2);
    Tensor first;
    for (const auto& [name, engine] : engines()) {
      const Tensor got = product(engine, x, packed);
      if (!first.defined()) first = got;
      EXPECT_TRUE(same_bits(got, first)) << name;
      for (int64_t r = 0; r < rows; ++r) {
        double largest = 0;
        for (int64_t i = 0; i < k; ++i)
          largest = std::max(largest, std::abs(double{x.row<float>(r)[i]}));
        for (int64_t c = 0; c < n; ++c) {
          double want = 0, weights = 0;
          for (int64_t i = 0; i < k; ++i) {
            want += double{x.row<float>(r)[i]} * double{value_of(w, c, i)};
            weights += std::abs(double{value_of(w, c, i)});
          }
          EXPECT_NEAR(got.row<float>(r)[c], want, 0.51 * largest / 32639 * weights + 1e-5)
              << name << " " << rows << "x" << n << "x" << k;
        }
      }
    }
  }
}

TEST(NibbleProducts, RowsOfTheLargestNumbersOfZerosAndOfNone) {
  const int64_t k = 65536;
  StoredMatrix w(Tensor::empty({2, k / 2}, DType::u8), Tensor::empty({2, k / 32}, DType::bf16));
  std::fill_n(w.values.row<uint8_t>(0), k / 2, uint8_t{0x88});  // -8
  std::fill_n(w.values.row<uint8_t>(1), k / 2, uint8_t{0x77});
  for (int64_t g = 0; g < 2 * (k / 32); ++g)
    w.scales.data<BFloat16>()[g] = tensor::to_bfloat16(0.5f);
  Tensor x = Tensor::empty({5, k}, DType::f32);
  for (int64_t r = 0; r < 5; ++r) std::fill_n(x.row<float>(r), k, r == 1 ? -3.0f : 3.0f);
  std::fill_n(x.row<float>(2), k, 0.0f);
  x.row<float>(3)[77] = std::nanf("");
  x.row<float>(4)[k - 1] = INFINITY;
  const PackedWeight packed = pack_weight(w, {}, DType::i8, Isa::avx2);
  for (const auto& [name, engine] : engines()) {
    const Tensor y = product(engine, x, packed);
    for (int64_t c = 0; c < 2; ++c) {
      const float want = static_cast<float>(k) * 3 * (c == 0 ? -4.0f : 3.5f);
      EXPECT_NEAR(y.row<float>(0)[c], want, 50.0f) << name;  // 2048 sums in f32
      EXPECT_NEAR(y.row<float>(1)[c], -want, 50.0f) << name;
      EXPECT_EQ(y.row<float>(2)[c], 0) << name;
      EXPECT_TRUE(std::isnan(y.row<float>(3)[c]) && std::isnan(y.row<float>(4)[c])) << name;
    }
  }
}
#endif

}  // namespace
}  // namespace tessera::kernels

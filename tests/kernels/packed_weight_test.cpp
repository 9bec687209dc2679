#include "kernels/packed_weight.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/random_values.h"
#include "tessera/error.h"

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

// The place of W[row, i] of tile t in the panel layout, in elements.
int64_t place(const PackedWeight& w, int64_t panel, int64_t tile, int64_t column, int64_t i) {
  const int64_t per_word = 4 / size_of(w.dtype), step = step_elements(w.dtype);
  const int64_t elements = kStepBytes / size_of(w.dtype);
  return (panel * panel_shape(w).steps + i / step) * elements + tile * elements / 2 +
         i % step / per_word * kTileColumns * per_word + column * per_word + i % per_word;
}

TEST(PackedWeight, PanelsHoldEveryElementAndZeros) {
  for (DType dtype : {DType::f32, DType::bf16}) {
    const Tensor w = random_tensor({45, 37}, DType::f32, 1);
    const PackedWeight packed = pack_weight(w, {}, dtype, Isa::avx512);
    const PanelShape shape = panel_shape(packed);
    EXPECT_EQ(shape.panels, 2);
    const std::vector<float> got = packed.data.to_floats();
    double sum = 0, want = 0;
    for (float v : got) sum += v * v;
    for (int64_t r = 0; r < 45; ++r)
      for (int64_t i = 0; i < 37; ++i) {
        const float value = dtype == DType::f32
                                ? w.row<float>(r)[i]
                                : tensor::to_float(tensor::to_bfloat16(w.row<float>(r)[i]));
        EXPECT_EQ(got[static_cast<size_t>(place(packed, r / 32, r % 32 / 16, r % 16, i))], value);
        want += value * value;
      }
    EXPECT_NEAR(sum, want, 1e-6 * want);  // nothing but zeros beside them
  }
}

TEST(PackedWeight, PairsPutGateAndUpSideBySide) {
  const Tensor gate = random_tensor({20, 33}, DType::bf16, 1);
  const Tensor up = random_tensor({20, 33}, DType::bf16, 2);
  const PackedWeight packed = pack_weight(gate, up, DType::bf16, Isa::amx);
  EXPECT_EQ(panel_shape(packed).panels, 2);
  const std::vector<float> got = packed.data.to_floats(), g = gate.to_floats(), u = up.to_floats();
  for (int64_t r = 0; r < 20; ++r)
    for (int64_t i = 0; i < 33; ++i) {
      const auto at = static_cast<size_t>(r * 33 + i);
      EXPECT_EQ(got[static_cast<size_t>(place(packed, r / 16, 0, r % 16, i))], g[at]);
      EXPECT_EQ(got[static_cast<size_t>(place(packed, r / 16, 1, r % 16, i))], u[at]);
    }
}

// With and without tails.
TEST(PackedWeight, PanelsOfAFileAreThoseOfItsRows) {
  for (const auto& [n, k] : {std::pair{64, 128}, {48, 192}, {45, 70}})
    for (const bool paired : {false, true}) {
      const StoredMatrix w = quantise_rows(random_tensor({n, k}, DType::f32, 1));
      const StoredMatrix up =
          paired ? quantise_rows(random_tensor({n, k}, DType::f32, 2)) : StoredMatrix();
      const StoredPanels panels = panels_of(w, up);
      EXPECT_EQ(fills_panels(n, k, paired), panels.values.bytes() == n * k * (paired ? 2 : 1));
      const auto rows = rows_of(panels);
      EXPECT_EQ(rows[0].values.to_floats(), w.values.to_floats());
      EXPECT_EQ(rows[0].scales.to_floats(), w.scales.to_floats());
      EXPECT_EQ(rows[1].values.defined(), paired);
      if (paired) {
        EXPECT_EQ(rows[1].values.to_floats(), up.values.to_floats());
        EXPECT_EQ(rows[1].scales.to_floats(), up.scales.to_floats());
      }
      for (const Isa isa : {Isa::reference, Isa::avx2, Isa::avx512, Isa::amx}) {
        const PackedWeight got = pack_panels(panels, isa),
                           want = pack_weight(w, up, DType::i8, isa);
        EXPECT_EQ(got.data.to_floats(), want.data.to_floats());
        EXPECT_EQ(got.scales.to_floats(), want.scales.to_floats());
        EXPECT_EQ(got.n, want.n);
        EXPECT_EQ(got.k, want.k);
        EXPECT_EQ(got.paired, want.paired);
        EXPECT_EQ(got.data.raw() == panels.values.raw(), isa >= Isa::avx2) << "nothing is copied";
      }
    }
}

TEST(PackedWeight, Int8KeepsEachElementWithinHalfAScale) {
  for (Isa isa : {Isa::reference, Isa::avx512}) {
    Tensor w = random_tensor({45, 70}, DType::f32, 1);
    for (int64_t i = 0; i < 70; ++i) w.row<float>(3)[i] = 0;
    for (int64_t i = 0; i < 70; ++i) w.row<float>(9)[i] *= 1000;  // a column with its own scale
    const PackedWeight packed = pack_weight(w, {}, DType::i8, isa);
    EXPECT_EQ(packed.data.dtype(), DType::i8);
    EXPECT_EQ(packed.bytes(), packed.data.elements() + 4 * packed.scales.elements());
    const std::vector<float> got = packed.data.to_floats();
    for (int64_t r = 0; r < 45; ++r) {
      const float scale = packed.scales.data<float>()[r];
      float most = 0;
      for (int64_t i = 0; i < 70; ++i) {
        const int64_t at =
            isa == Isa::reference ? r * 70 + i : place(packed, r / 32, r % 32 / 16, r % 16, i);
        EXPECT_LE(std::abs(got[size_t(at)] * scale - w.row<float>(r)[i]), 0.501f * scale);
        most = std::max(most, std::abs(got[size_t(at)]));
      }
      EXPECT_EQ(most, r == 3 ? 0 : 127) << r;
    }
  }
  const Tensor meta = Tensor::empty({128, 256}, DType::f32, tensor::Device::meta);
  const int64_t half = pack_weight(meta, {}, DType::bf16, Isa::avx512).bytes() / 2;
  EXPECT_EQ(pack_weight(meta, {}, DType::i8, Isa::avx512).bytes(), half + 4 * 128);
  const Tensor long_rows = Tensor::empty({1, 65537}, DType::bf16, tensor::Device::meta);
  EXPECT_THROW(pack_weight(long_rows, {}, DType::i8, Isa::avx512), Error);
}

TEST(PackedWeight, WhatIsStoredInInt8IsPackedAsAtLoad) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (Isa isa : {Isa::reference, Isa::avx512}) {
      const Tensor w = random_tensor({45, 70}, dtype, 1), up = random_tensor({45, 70}, dtype, 2);
      const StoredMatrix rows = quantise_rows(w), above = quantise_rows(up);
      EXPECT_EQ(rows.values.dtype(), DType::i8);
      EXPECT_EQ(rows.scales.shape(), (tensor::Shape{45}));
      for (const bool paired : {false, true}) {
        const PackedWeight once =
                               pack_weight(rows, paired ? above : StoredMatrix(), DType::i8, isa),
                           load = pack_weight(w, paired ? up : Tensor(), DType::i8, isa);
        EXPECT_EQ(once.data.to_floats(), load.data.to_floats());
        EXPECT_EQ(once.scales.to_floats(), load.scales.to_floats());
        EXPECT_EQ(once.paired, paired);
      }
    }
}

TEST(PackedWeight, ARowThatHoldsNoNumbersHasNoScale) {
  for (const float odd : {INFINITY, -INFINITY, NAN}) {
    Tensor w = random_tensor({3, 40}, DType::f32, 1);
    w.row<float>(1)[33] = odd;
    const std::vector<float> scales = quantise_rows(w).scales.to_floats();
    EXPECT_TRUE(std::isfinite(scales[0]) && std::isfinite(scales[2]));
    EXPECT_TRUE(std::isnan(scales[1]));
  }
}

TEST(PackedWeight, RowMajorStaysInOrder) {
  const Tensor gate = random_tensor({3, 5}, DType::f16, 1),
               up = random_tensor({3, 5}, DType::f32, 2);
  const PackedWeight packed = pack_weight(gate, up, DType::f32, Isa::reference);
  std::vector<float> want = gate.to_floats();
  for (float v : up.to_floats()) want.push_back(v);
  EXPECT_EQ(packed.data.to_floats(), want);
}

TEST(PackedWeight, MetaKeepsTheShapeOnly) {
  const Tensor w = Tensor::empty({64, 96}, DType::bf16, tensor::Device::meta);
  for (Isa isa : {Isa::reference, Isa::avx512}) {
    const PackedWeight packed = pack_weight(w, {}, DType::bf16, isa);
    EXPECT_TRUE(packed.data.is_meta());
    EXPECT_EQ(packed.data.bytes(), 64 * 96 * 2);
  }
}

TEST(PackedWeight, RefusesWhatItCannotPack) {
  const Tensor w = random_tensor({4, 4}, DType::f32, 1);
  EXPECT_THROW(pack_weight(w, {}, DType::f16, Isa::reference), Error);
  EXPECT_THROW(pack_weight(w.reshape({16}), {}, DType::f32, Isa::reference), Error);
  EXPECT_THROW(pack_weight(w, random_tensor({4, 5}, DType::f32, 1), DType::f32, Isa::reference),
               Error);
  const StoredMatrix rows = quantise_rows(w);
  EXPECT_THROW(pack_weight(rows, {}, DType::bf16, Isa::reference), Error);
  EXPECT_THROW(pack_weight(rows.values, {}, DType::i8, Isa::reference), Error);
  EXPECT_THROW(
      pack_weight({rows.values, Tensor::zeros({3}, DType::f32)}, {}, DType::i8, Isa::reference),
      Error);
  EXPECT_THROW(pack_weight({w, rows.scales}, {}, DType::i8, Isa::reference), Error);
}

}  // namespace
}  // namespace tessera::kernels

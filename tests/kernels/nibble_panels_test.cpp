#include "kernels/nibble_panels.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "kernels/random_values.h"

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

std::vector<float> floats(const Tensor& x) {
  return x.defined() ? x.to_floats() : std::vector<float>();
}

// With and without tails.
TEST(NibblePanels, OfAFileAreThoseOfItsRows) {
  for (const auto& [n, k] : {std::pair{64, 128}, {48, 192}, {45, 70}})
    for (const bool paired : {false, true}) {
      const StoredMatrix w = quantise_groups(random_tensor({n, k}, DType::f32, 1));
      const StoredMatrix up =
          paired ? quantise_groups(random_tensor({n, k}, DType::f32, 2)) : StoredMatrix();
      const StoredPanels panels = panels_of(w, up);
      EXPECT_TRUE(holds_nibbles(panels));
      EXPECT_EQ(fills_panels(n, k, paired),
                panels.values.bytes() * 16 == n * k * (paired ? 2 : 1) * 9);
      const auto rows = rows_of(panels);
      EXPECT_EQ(rows[0].values.to_floats(), w.values.to_floats());
      EXPECT_EQ(rows[0].scales.to_floats(), w.scales.to_floats());
      EXPECT_EQ(floats(rows[1].values), floats(up.values));
      EXPECT_EQ(floats(rows[1].scales), floats(up.scales));
      for (const Isa isa : {Isa::reference, Isa::avx2, Isa::avx512, Isa::amx}) {
        const PackedWeight got = pack_panels(panels, isa),
                           want = pack_weight(w, up, DType::i8, isa);
        EXPECT_TRUE(got.int4);
        EXPECT_EQ(got.data.to_floats(), want.data.to_floats());
        EXPECT_EQ(floats(got.scales), floats(want.scales));
        EXPECT_EQ(got.n, want.n);
        EXPECT_EQ(got.k, want.k);
        EXPECT_EQ(got.paired, want.paired);
        EXPECT_EQ(got.data.raw() == panels.values.raw(), isa >= Isa::avx2) << "nothing is copied";
      }
    }
}

}  // namespace
}  // namespace tessera::kernels

#include "kernels/packed_transpose.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/random_values.h"
#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

Tensor turned_by_hand(const Tensor& table) {
  const std::vector<float> values = table.to_floats();
  const int64_t k = table.size(0), n = table.size(1);
  const Tensor turned = Tensor::empty({n, k}, DType::f32);
  for (int64_t r = 0; r < k; ++r)
    for (int64_t c = 0; c < n; ++c)
      turned.row<float>(c)[r] = values[static_cast<size_t>(r * n + c)];
  return turned;
}

// The copy takes no memory besides the result; the table as a weight takes none, and its packed
// parts are those of the whole.
TEST(PackedTranspose, IsThatOfATurnedTable) {
  for (const auto& [k, n] : {std::pair<int64_t, int64_t>{1, 1}, {33, 16}, {70, 47}, {130, 96}})
    for (DType stored : {DType::f32, DType::bf16, DType::f16})
      for (DType dtype : {DType::f32, DType::bf16}) {
        const Tensor table = random_tensor({k, n}, stored, 1), turned = turned_by_hand(table);
        const PackedWeight rows = pack_weight(turned, {}, dtype, Isa::reference),
                           panels = pack_weight(turned, {}, dtype, Isa::avx2);
        tensor::Scope scope = tensor::current_scope();
        scope.memory = std::make_shared<tensor::MemoryTracker>();
        const tensor::BindScope bound(scope);
        const PackedWeight copy = pack_transposed(table, dtype, Isa::reference);
        EXPECT_EQ(copy.data.shape(), rows.data.shape());
        EXPECT_EQ(copy.data.to_floats(), rows.data.to_floats()) << k << ", " << n;
        EXPECT_EQ(scope.memory->peak(), copy.bytes());
        const PackedWeight whole = pack_transposed(table, dtype, Isa::avx2);
        EXPECT_TRUE(is_table(whole));
        EXPECT_FALSE(is_table(copy));
        EXPECT_FALSE(is_table(panels));
        EXPECT_EQ(scope.memory->peak(), copy.bytes());
        const PanelShape shape = panel_shape(whole);
        std::vector<std::byte> part(kStepBytes);
        for (int64_t p = 0; p < shape.panels; ++p)
          for (int64_t s = 0; s < shape.steps; ++s) {
            pack_steps(whole, p, s, 1, part.data());
            const auto* const want =
                panels.data.data<std::byte>() + (p * shape.steps + s) * kStepBytes;
            EXPECT_EQ(std::memcmp(part.data(), want, kStepBytes), 0) << k << ", " << n;
          }
      }
}

TEST(PackedTranspose, MetaKeepsTheShapeOnly) {
  const Tensor table = Tensor::empty({96, 64}, DType::bf16, tensor::Device::meta);
  for (Isa isa : {Isa::reference, Isa::avx512}) {
    const PackedWeight packed = pack_transposed(table, DType::bf16, isa);
    EXPECT_TRUE(packed.data.is_meta());
    EXPECT_EQ(packed.n, 64);
    EXPECT_EQ(packed.k, 96);
    EXPECT_EQ(packed.data.bytes(), 64 * 96 * 2);
  }
}

TEST(PackedTranspose, RefusesWhatItCannotPack) {
  const Tensor table = random_tensor({4, 4}, DType::f32, 1);
  const Tensor integers = quantise_rows(table).values;
  for (Isa isa : {Isa::reference, Isa::avx2}) {
    EXPECT_THROW(pack_transposed(table, DType::i8, isa), Error);
    EXPECT_THROW(pack_transposed(table.reshape({16}), DType::f32, isa), Error);
    EXPECT_THROW(pack_transposed(integers, DType::f32, isa), Error);
  }
}

}  // namespace
}  // namespace tessera::kernels

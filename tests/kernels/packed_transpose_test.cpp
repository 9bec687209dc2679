#include "kernels/packed_transpose.h"

#include <gtest/gtest.h>

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

// Packing takes no memory besides the result.
TEST(PackedTranspose, IsThatOfATurnedTable) {
  for (const auto& [k, n] : {std::pair<int64_t, int64_t>{1, 1}, {33, 16}, {70, 47}, {130, 96}})
    for (DType stored : {DType::f32, DType::bf16, DType::f16})
      for (DType dtype : {DType::f32, DType::bf16})
        for (Isa isa : {Isa::reference, Isa::avx2, Isa::amx}) {
          const Tensor table = random_tensor({k, n}, stored, 1);
          const std::vector<float> values = table.to_floats();
          const Tensor turned = Tensor::empty({n, k}, DType::f32);
          for (int64_t r = 0; r < k; ++r)
            for (int64_t c = 0; c < n; ++c)
              turned.row<float>(c)[r] = values[static_cast<size_t>(r * n + c)];
          const PackedWeight want = pack_weight(turned, {}, dtype, isa);
          tensor::Scope scope = tensor::current_scope();
          scope.memory = std::make_shared<tensor::MemoryTracker>();
          const tensor::BindScope bound(scope);
          const PackedWeight packed = pack_transposed(table, dtype, isa);
          EXPECT_EQ(packed.data.shape(), want.data.shape());
          EXPECT_EQ(packed.data.to_floats(), want.data.to_floats()) << k << ", " << n;
          EXPECT_EQ(scope.memory->peak(), packed.bytes());
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
  EXPECT_THROW(pack_transposed(table, DType::i8, Isa::reference), Error);
  EXPECT_THROW(pack_transposed(table.reshape({16}), DType::f32, Isa::reference), Error);
  EXPECT_THROW(pack_transposed(quantise_rows(table).values, DType::f32, Isa::reference), Error);
}

}  // namespace
}  // namespace tessera::kernels

#include "kernels/pack_rows.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/random_values.h"
#include "tessera/error.h"

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

// Rows of a matrix; `counts` receives the rows of each read.
StoredRows by_rows(const StoredMatrix& w, std::vector<int64_t>& counts) {
  if (!w.values.defined()) return {};
  const Tensor& values = w.values;
  return {{Tensor::empty(values.shape(), values.dtype(), tensor::Device::meta), w.scales},
          [values, &counts](int64_t first, int64_t count, std::byte* to) {
            const int64_t bytes = values.size(1) * size_of(values.dtype());
            ASSERT_LE(first + count, values.size(0));
            std::memcpy(to, values.data<std::byte>() + first * bytes,
                        static_cast<size_t>(count * bytes));
            counts.push_back(count);
          }};
}

TEST(PackRows, RowsThatAreReadPackLikeRowsInMemory) {
  for (const DType from : {DType::f32, DType::bf16, DType::f16, DType::i8})
    for (const DType to : {DType::f32, DType::bf16, DType::i8})
      for (const auto& [n, k] : {std::pair<int64_t, int64_t>{1, 1}, {45, 37}, {64, 128}, {17, 200}})
        for (const bool paired : {false, true}) {
          if (from == DType::i8 && to != DType::i8) continue;
          const auto stored = [&, n = n, k = k](int seed) -> StoredMatrix {
            const Tensor w = random_tensor({n, k}, from == DType::i8 ? DType::f32 : from, seed);
            return from == DType::i8 ? quantise_rows(w) : StoredMatrix(w);
          };
          const StoredMatrix w = stored(1), up = paired ? stored(2) : StoredMatrix{};
          std::vector<int64_t> counts;
          const PackedWeight want = pack_weight(w, up, to, Isa::avx2);
          const PackedWeight got =
              pack_rows(by_rows(w, counts), by_rows(up, counts), to, Isa::avx2);
          EXPECT_EQ(got.data.to_floats(), want.data.to_floats()) << n << "x" << k;
          if (to == DType::i8) {
            EXPECT_EQ(got.scales.to_floats(), want.scales.to_floats());
          }
          EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), paired ? 2 * n : n)
              << "each row once";
        }
  std::vector<int64_t> counts;
  const StoredRows rows = by_rows(random_tensor({4, 4}, DType::f32, 1), counts);
  EXPECT_THROW(pack_rows(rows, {}, DType::f32, Isa::reference), Error);
}

}  // namespace
}  // namespace tessera::kernels

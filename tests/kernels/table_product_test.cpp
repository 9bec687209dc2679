#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "base/thread_pool.h"
#include "kernels/avx512/product.h"
#include "kernels/bf16_path.h"
#include "kernels/engine_product.h"
#include "kernels/packed_transpose.h"
#include "kernels/random_values.h"
#include "kernels/table.h"
#include "tensor/scope.h"

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() &&
         std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0;
}

Tensor times(const Tensor& x, const PackedWeight& w, const Tensor& residual) {
  Tensor y = Tensor::empty({x.size(0), w.n}, DType::f32);
  Epilogue epilogue;
  epilogue.residual = residual.raw();
  epilogue.residual_stride = w.n;
  cpu_table(w.isa).matmul({.x = x.raw(),
                           .x_dtype = x.dtype(),
                           .x_stride = x.stride(0),
                           .rows = x.size(0),
                           .weight = &w,
                           .epilogue = epilogue,
                           .y = y.raw(),
                           .y_dtype = DType::f32,
                           .y_stride = w.n});
  return y;
}

// Odd sizes; depths of one chunk, of several, and of a chunk's rest.
constexpr std::array<int64_t, 3> kSizes[] = {{0, 8, 8},      {1, 1, 1},      {5, 17, 33},
                                             {37, 100, 391}, {33, 64, 1255}, {300, 33, 770}};

TEST(TableProduct, AProductWithATableHasTheBitsOfItsPackedTranspose) {
  for (Isa isa : available_isas())
    for (const auto& [rows, n, k] : kSizes)
      for (DType stored : {DType::f32, DType::bf16, DType::f16})
        for (DType dtype : {DType::f32, DType::bf16}) {
          const Tensor table = random_tensor({k, n}, stored, 1);
          const Tensor x = random_tensor({rows, k}, DType::f32, 2);
          const Tensor residual = random_tensor({rows, n}, DType::f32, 3);
          const PackedWeight packed =
              pack_weight(pack_transposed(table, DType::f32, Isa::reference).data, {}, dtype, isa);
          EXPECT_TRUE(same_bits(times(x, pack_transposed(table, dtype, isa), residual),
                                times(x, packed, residual)))
              << name_of(isa) << " " << rows << "x" << n << "x" << k << " "
              << tensor::name_of(stored) << " " << tensor::name_of(dtype);
        }
}

TEST(TableProduct, UnderBothProductsOfBf16) {
  if (detected_isa() < Isa::avx512) GTEST_SKIP() << "this CPU has no AVX-512";
  const Tensor table = random_tensor({900, 70}, DType::bf16, 1);
  const Tensor x = random_tensor({61, 900}, DType::bf16, 2);
  const PackedWeight by_table = pack_transposed(table, DType::bf16, Isa::avx512);
  const PackedWeight packed = pack_weight(pack_transposed(table, DType::bf16, Isa::reference).data,
                                          {}, DType::bf16, Isa::avx512);
  const auto expect_same = [&](const wide::Engine& engine) {
    EXPECT_TRUE(same_bits(product(engine, x, by_table), product(engine, x, packed)));
  };
  expect_same(avx512::multiply_add_engine());
  if (has_dot_products()) expect_same(avx512::dot_engine());
}

// More rows than are multiplied together, and threads.
TEST(TableProduct, ARowDependsOnNothingElse) {
  const Tensor table = random_tensor({100, 40}, DType::bf16, 1);
  const Tensor x = random_tensor({2100, 100}, DType::f32, 2);
  const Tensor residual = random_tensor({2100, 40}, DType::f32, 3);
  for (Isa isa : available_isas()) {
    const PackedWeight w = pack_transposed(table, DType::bf16, isa);
    const Tensor all = times(x, w, residual);
    for (const int64_t r : {0, 1023, 2047, 2048, 2099})
      EXPECT_TRUE(same_bits(times(x.slice(0, r, r + 1), w, residual.slice(0, r, r + 1)),
                            all.slice(0, r, r + 1)))
          << name_of(isa) << " " << r;
    base::ThreadPool pool(3);
    tensor::Scope scope;
    scope.pool = &pool;
    const tensor::BindScope bind(scope);
    EXPECT_TRUE(same_bits(times(x, w, residual), all)) << name_of(isa);
  }
}

}  // namespace
}  // namespace tessera::kernels

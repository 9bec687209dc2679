#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "kernels/amx/sweep.h"
#include "kernels/packed_transpose.h"
#include "kernels/random_values.h"
#include "kernels/tile_model.h"
#include "tensor/scope.h"

#if defined(__x86_64__)
namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

// The blocking of AMX with a model of the instructions: everything except the instructions.
constexpr avx512::Engine kModel{.most = amx::kRows,
                                .padded = true,
                                .rows_for_bf16 = DType::bf16,
                                .sweep = amx::sweep<TileModel>,
                                .kernels = avx512::row_kernels,
                                .extend = amx::extend<TileModel>,
                                .chunk = amx::chunk_of};
constexpr ExpertTiles kModelTiles{
    [](const ExpertView& expert) { return avx512::expert_cuts(kModel, expert); },
    [](const ExpertView& expert, int64_t rows) {
      return avx512::expert_inner_bytes(kModel, expert, rows);
    },
    [](const ExpertTile& tile) { avx512::expert_up_tile(kModel, tile); },
    [](const ExpertTile& tile) { avx512::expert_down_tile(kModel, tile); }};

Tensor run(const Tensor& x, const PackedWeight& w, Activation activation) {
  Tensor y = Tensor::empty({x.size(0), w.n}, DType::f32);
  Epilogue epilogue;
  epilogue.activation = activation;
  avx512::multiply(kModel, {.x = x.raw(),
                            .x_dtype = DType::bf16,
                            .x_stride = x.stride(0),
                            .rows = x.size(0),
                            .weight = &w,
                            .epilogue = epilogue,
                            .y = y.raw(),
                            .y_dtype = DType::f32,
                            .y_stride = w.n});
  return y;
}

double worst_difference(const Tensor& a, const Tensor& b) {
  const std::vector<float> x = a.to_floats(), y = b.to_floats();
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i)
    worst = std::max(worst, std::abs(double{x[i]} - y[i]) / (1 + std::abs(double{y[i]})));
  return worst;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() &&
         std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0;
}

TEST(AmxSweep, EqualsTheReferenceOnModelledTiles) {
  // The vector work beside the tiles is AVX-512.
  if (detected_isa() < Isa::avx512) GTEST_SKIP() << "this CPU has no AVX-512";
  for (auto [rows, n, k] : {std::array<int64_t, 3>{1, 1, 1},
                            {5, 17, 33},
                            {37, 100, 70},
                            {70, 49, 577},
                            {33, 64, 1255},
                            {66, 33, 2400}})
    for (Activation act : {Activation::none, Activation::swiglu}) {
      const float scale = 1 / std::sqrt(static_cast<float>(k));
      const Tensor x = random_tensor({rows, k}, DType::bf16, 1);
      const Tensor w = random_tensor({n, k}, DType::bf16, 2, scale);
      const Tensor up =
          act == Activation::swiglu ? random_tensor({n, k}, DType::bf16, 3, scale) : Tensor{};
      const PackedWeight plain = pack_weight(w, up, DType::bf16, Isa::reference);
      Tensor want = Tensor::empty({rows, n}, DType::f32);
      Epilogue epilogue;
      epilogue.activation = act;
      reference::matmul({.x = x.raw(),
                         .x_dtype = DType::bf16,
                         .x_stride = k,
                         .rows = rows,
                         .weight = &plain,
                         .epilogue = epilogue,
                         .y = want.raw(),
                         .y_dtype = DType::f32,
                         .y_stride = n});
      EXPECT_LT(worst_difference(run(x, pack_weight(w, up, DType::bf16, Isa::amx), act), want),
                1e-5)
          << rows << "x" << n << "x" << k;
    }
}

TEST(AmxSweep, ARowDoesNotDependOnOtherRowsOrThreads) {
  if (detected_isa() < Isa::avx512) GTEST_SKIP() << "this CPU has no AVX-512";
  const Tensor x = random_tensor({77, 700}, DType::bf16, 1);
  const PackedWeight w =
      pack_weight(random_tensor({48, 700}, DType::bf16, 2), {}, DType::bf16, Isa::amx);
  const Tensor all = run(x, w, Activation::gelu_tanh);
  for (int64_t r = 0; r < 77; r += 19)
    EXPECT_TRUE(
        same_bits(run(x.slice(0, r, r + 1), w, Activation::gelu_tanh), all.slice(0, r, r + 1)));
  EXPECT_TRUE(same_bits(run(x.slice(0, 3, 40), w, Activation::gelu_tanh), all.slice(0, 3, 40)));
  base::ThreadPool pool(2);
  tensor::Scope scope;
  scope.pool = &pool;
  const tensor::BindScope bind(scope);
  EXPECT_TRUE(same_bits(run(x, w, Activation::gelu_tanh), all));
}

TEST(AmxSweep, ATableHasTheBitsOfItsPackedTranspose) {
  if (detected_isa() < Isa::avx512) GTEST_SKIP() << "this CPU has no AVX-512";
  for (const int64_t k : {33, 577, 1255, 2400}) {  // steps of 1, 1, 3 and 5 chunks
    const Tensor x = random_tensor({70, k}, DType::bf16, 1),
                 table = random_tensor({k, 49}, DType::bf16, 2);
    const PackedWeight packed = pack_weight(
        pack_transposed(table, DType::bf16, Isa::reference).data, {}, DType::bf16, Isa::amx);
    EXPECT_TRUE(same_bits(run(x, pack_transposed(table, DType::bf16, Isa::amx), Activation::none),
                          run(x, packed, Activation::none)))
        << k;
  }
}

TEST(AmxSweep, ExpertsEqualTheReferenceOnModelledTiles) {
  if (detected_isa() < Isa::avx512) GTEST_SKIP() << "this CPU has no AVX-512";
  const int64_t tokens = 45, hidden = 70, inner = 50;
  std::vector<PackedWeight> packed;
  for (Isa isa : {Isa::reference, Isa::amx})
    for (uint32_t e = 0; e < 2; ++e) {
      packed.push_back(pack_weight(random_tensor({inner, hidden}, DType::bf16, 3 * e, 0.1f),
                                   random_tensor({inner, hidden}, DType::bf16, 3 * e + 1, 0.1f),
                                   DType::bf16, isa));
      packed.push_back(pack_weight(random_tensor({hidden, inner}, DType::bf16, 3 * e + 2, 0.1f), {},
                                   DType::bf16, isa));
    }
  const Tensor x = random_tensor({tokens, hidden}, DType::bf16, 9);
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < tokens; ++t) ids.push_back(t % 3 == 2 ? -1 : static_cast<int32_t>(t % 3));
  auto rows_of = [&](size_t first, auto kernel) {
    const ExpertView bank[] = {{&packed[first], &packed[first + 1]},
                               {&packed[first + 2], &packed[first + 3]}};
    Tensor rows = Tensor::empty({tokens, hidden}, DType::bf16);
    kernel(ExpertsArgs{.x = x.raw(),
                       .dtype = DType::bf16,
                       .x_stride = hidden,
                       .tokens = tokens,
                       .slots = 1,
                       .hidden = hidden,
                       .inner = inner,
                       .ids = ids.data(),
                       .bank = bank,
                       .experts = 2,
                       .rows = rows.raw()});
    return rows;
  };
  const Tensor want = rows_of(0, reference::experts);
  const Tensor got = rows_of(4, [](const ExpertsArgs& args) { run_experts(kModelTiles, args); });
  EXPECT_LT(worst_difference(got, want), 5e-3);
}

}  // namespace
}  // namespace tessera::kernels
#endif  // __x86_64__

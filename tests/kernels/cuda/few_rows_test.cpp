#include "kernels/cuda/leg.h"
// Include leg.h first: the sources below depend on the leg.
#include <gtest/gtest.h>

#include "kernels/closeness.h"
#include "kernels/cuda/few_rows.h"
#include "kernels/matmul_problem.h"
#if !defined(TESSERA_ON_GPU)
#include "kernels/cuda/few_rows.cu"
#endif

namespace tessera::kernels {
namespace {

constexpr auto kF32 = DType::f32, kBf16 = DType::bf16;

TEST(CudaFewRows, EqualTheReference) {
  const std::vector<MatmulProblem> small = {
      {1, 24, 72, kF32, kBf16, kF32, Activation::silu, true, false, false, false, 0},
      {2, 9, 264, kBf16, kBf16, kBf16, Activation::gelu_tanh, true, true, true, true, 8},
      {3, 130, 8, kF32, kF32, kBf16, Activation::none, false, true, true, false, 4},
      {7, 17, 520, kBf16, kF32, DType::f16, Activation::gelu_erf, true, false, true, false, 0},
      {6, 33, 16, kBf16, kBf16, kBf16, Activation::quick_gelu, true, false, false, false, 0},
      {8, 70, 40, kF32, kBf16, kF32, Activation::relu, false, false, false, false, 8},
  };
  const std::vector<MatmulProblem> large = {
      {1, 18432, 3072, kF32, kBf16, kF32, Activation::none, true, false, false, false, 0},
      {2, 9216, 1536, kF32, kBf16, kF32, Activation::none, true, false, false, false, 0},
      {1, 3072, 3072, kF32, kF32, kF32, Activation::none, true, false, true, false, 0},
  };
  for (const MatmulProblem& p : problems(small, large)) {
    const Tensor want = run(kHost, reference::matmul, p);
    const auto once = [&] { return run(kThere, cuda::few_rows, p); };
    const Tensor got = once();
    EXPECT_LT(worst_difference(got, want), tolerance(p.y, 1e-4)) << p.rows << " " << p.n;
    EXPECT_TRUE(same_bits(again(once), got)) << p.rows << " " << p.n;
  }
}

TEST(CudaFewRows, ARowDoesNotDependOnOthers) {
  MatmulProblem p{8, 40, 264, kF32, kBf16, kF32, Activation::silu, true, false, false, false, 0};
  const Tensor all = run(kThere, cuda::few_rows, p);
  for (const int64_t rows : {1, 2, 3}) {
    p.rows = rows;
    EXPECT_TRUE(same_bits(run(kThere, cuda::few_rows, p), all.slice(0, 0, rows)));
  }
}

TEST(CudaFewRows, TakeFewRowsOfWholeWords) {
  alignas(16) static unsigned char memory[4096];
  PackedWeight w = pack_weight(random_tensor({8, 16}, kF32, 1), {}, kBf16, Isa::reference);
  MatmulArgs args{
      .x = memory, .x_dtype = kF32, .x_stride = 16, .rows = 8, .weight = &w, .epilogue = {}};
  EXPECT_TRUE(cuda::serves_few_rows(args));
  args.rows = 9;
  EXPECT_FALSE(cuda::serves_few_rows(args));
  args.rows = 1;
  args.x_stride = 18;
  EXPECT_FALSE(cuda::serves_few_rows(args));
  args.x_stride = 16;
  args.x = memory + 8;
  EXPECT_FALSE(cuda::serves_few_rows(args));
  w = pack_weight(random_tensor({8, 12}, kF32, 1), {}, kBf16, Isa::reference);
  EXPECT_FALSE(cuda::serves_few_rows({.x = memory, .x_stride = 16, .rows = 1, .weight = &w}));
}

}  // namespace
}  // namespace tessera::kernels

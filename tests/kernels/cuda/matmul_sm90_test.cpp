#include "kernels/cuda/leg.h"
// The leg comes first: it is what the sources below are compiled with.
#include <gtest/gtest.h>

#include "kernels/closeness.h"
#include "kernels/cuda/matmul_sm90.h"
#include "kernels/matmul_problem.h"
#if !defined(TESSERA_ON_GPU)
#include "kernels/cuda/matmul_sm90.cu"
#endif

namespace tessera::kernels {
namespace {

// Products whose epilogue the library does not have, large enough for the kernel of Hopper.
const std::vector<MatmulProblem> kSmall = {
    {64, 24, 72, DType::bf16, DType::bf16, DType::bf16, Activation::silu, true, false, false, false,
     8},
    {130, 136, 64, DType::bf16, DType::bf16, DType::bf16, Activation::gelu_tanh, true, true, true,
     false, 0},
    {70, 264, 136, DType::f32, DType::bf16, DType::bf16, Activation::none, true, true, true, true,
     3},
    {200, 520, 40, DType::bf16, DType::bf16, DType::f32, Activation::gelu_erf, false, true, false,
     false, 8},
    {150, 72, 200, DType::bf16, DType::bf16, DType::bf16, Activation::swiglu, false, false, true,
     false, 16},
    {131, 400, 24, DType::bf16, DType::bf16, DType::f16, Activation::swiglu, false, true, false,
     false, 0},
};
const std::vector<MatmulProblem> kLarge = {
    {1024, 3456, 1152, DType::bf16, DType::bf16, DType::bf16, Activation::none, true, false, true,
     false, 0},
    {4096, 1536, 1000, DType::bf16, DType::bf16, DType::bf16, Activation::gelu_tanh, true, true,
     true, false, 0},
    {600, 2048, 1024, DType::bf16, DType::bf16, DType::bf16, Activation::swiglu, false, false,
     false, false, 0},
};

TEST(CudaMatmulSm90, EqualsTheReference) {
  for (const MatmulProblem& p : problems(kSmall, kLarge)) {
    const Tensor want = run(kHost, reference::matmul, p);
    each_kind([&] {
      const auto once = [&] { return run(kThere, cuda::matmul, p); };
      const Tensor got = once();
      EXPECT_LT(worst_difference(got, want), tolerance(p.y, 1e-4)) << p.rows << " " << p.n;
      EXPECT_TRUE(same_bits(again(once), got)) << p.rows << " " << p.n;
    });
  }
}

#if !defined(TESSERA_ON_GPU)
TEST(CudaMatmulSm90, ARowDoesNotDependOnOthers) {
  MatmulProblem p{
      300,   320,   136, DType::bf16, DType::bf16, DType::bf16, Activation::silu, true, true,
      false, false, 0};
  emulation::warpgroups = true;
  const Tensor all = run(kThere, cuda::matmul, p);
  p.rows = 77;
  EXPECT_TRUE(same_bits(run(kThere, cuda::matmul, p), all.slice(0, 0, 77)));
  emulation::warpgroups = false;
}
#endif

TEST(CudaMatmulSm90, TakesWholeWordsOfBf16AndNotFewRows) {
  alignas(16) static const unsigned char memory[64] = {};
  cuda::LibraryProduct p{
      .x = memory, .w = memory, .dtype = DType::bf16, .rows = 64, .n = 8, .k = 8, .x_stride = 8};
  EXPECT_TRUE(cuda::serves_sm90(p));
  for (auto change :
       {+[](cuda::LibraryProduct& q) { q.rows = 63; }, +[](cuda::LibraryProduct& q) { q.k = 12; },
        +[](cuda::LibraryProduct& q) { q.x_stride = 9; },
        +[](cuda::LibraryProduct& q) { q.x = memory + 8; },
        +[](cuda::LibraryProduct& q) { q.dtype = DType::f32; }}) {
    cuda::LibraryProduct q = p;
    change(q);
    EXPECT_FALSE(cuda::serves_sm90(q));
  }
  EXPECT_LE(cuda::ProductTile<256>::kShared, 227 * 1024);
  EXPECT_LE(cuda::ProductTile<128>::kShared, 227 * 1024);
}

}  // namespace
}  // namespace tessera::kernels

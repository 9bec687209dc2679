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

// matmul() of bf16 matrices by tiles of such a width.
template <int Width>
void by_width(const MatmulArgs& a) {
  const PackedWeight& w = *a.weight;
  cuda::matmul_sm90({.x = a.x,
                     .w = w.data.raw(),
                     .dtype = w.dtype,
                     .rows = a.rows,
                     .n = w.paired ? 2 * w.n : w.n,
                     .k = w.k,
                     .x_stride = a.x_stride},
                    {nullptr, 0, a.rows, w.n, a.epilogue, a.y, a.y_dtype, a.y_stride}, Width);
}

TEST(CudaMatmulSm90, EveryWidthEqualsTheReference) {
  using Kernel = void (*)(const MatmulArgs&);
  constexpr Kernel kernels[] = {by_width<128>, by_width<192>, by_width<256>};
  std::vector<MatmulProblem> small = {
      {260, 328, 136, DType::bf16, DType::bf16, DType::bf16, Activation::gelu_tanh, true, true,
       true, true, 0},
      {129, 200, 136, DType::bf16, DType::bf16, DType::f32, Activation::swiglu, false, false, true,
       false, 8},
  };
  std::vector<MatmulProblem> large = kLarge;
  large.push_back({1537, 1160, 3080, DType::bf16, DType::bf16, DType::bf16, Activation::none, true,
                   true, true, true, 0});
#if !defined(TESSERA_ON_GPU)
  emulation::warpgroups = true;
#endif
  for (const MatmulProblem& p : problems(small, large)) {
    const Tensor want = run(kHost, reference::matmul, p);
    std::vector<Tensor> got;
    for (const Kernel kernel : kernels) {
      const auto once = [&] { return run(kThere, kernel, p); };
      got.push_back(once());
      EXPECT_LT(worst_difference(got.back(), want), tolerance(p.y, 1e-4)) << got.size();
      EXPECT_TRUE(same_bits(again(once), got.back())) << got.size();
      EXPECT_TRUE(same_bits(got.back(), got.front())) << got.size();  // whichever has a row
    }
  }
#if !defined(TESSERA_ON_GPU)
  emulation::warpgroups = false;
#endif
}

// What an H200 took, docs/results/gpu.md: within 4 % of the best of the four.
TEST(CudaMatmulSm90, TheWidthIsWhatTookLeastTime) {
  using cuda::product_width;
  EXPECT_EQ(product_width(333, 1536, 6144, false, 132), 0);
  EXPECT_EQ(product_width(1536, 3072, 15360, false, 132), 0);
  EXPECT_EQ(product_width(1024, 1536, 1536, false, 132), 128);
  EXPECT_EQ(product_width(2048, 1152, 1152, false, 132), 192);
  EXPECT_EQ(product_width(4096, 12288, 3072, false, 132), 256);
  EXPECT_GT(product_width(64, 64, 64, true, 132), 0);  // SwiGLU is finished in registers
}

#if !defined(TESSERA_ON_GPU)
TEST(CudaMatmulSm90, ARowDoesNotDependOnOthers) {
  MatmulProblem p{
      300,   320,   136, DType::bf16, DType::bf16, DType::bf16, Activation::silu, true, true,
      false, false, 0};
  emulation::warpgroups = true;
  const Tensor all = run(kThere, by_width<256>, p);
  p.rows = 77;
  EXPECT_TRUE(same_bits(run(kThere, by_width<256>, p), all.slice(0, 0, 77)));
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
  EXPECT_LE(cuda::ProductTile<192>::kShared, 227 * 1024);
  EXPECT_LE(cuda::ProductTile<128>::kShared, 227 * 1024);
}

}  // namespace
}  // namespace tessera::kernels

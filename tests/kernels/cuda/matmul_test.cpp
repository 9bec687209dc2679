#include "kernels/cuda/leg.h"
// Include leg.h first: the sources below depend on the leg.
#include <gtest/gtest.h>

#include "kernels/closeness.h"
#include "kernels/cuda/matmul_plan.h"
#include "kernels/matmul_problem.h"
#if !defined(TESSERA_ON_GPU)
#include "kernels/cuda/matmul.cu"
#endif

namespace tessera::kernels {
#if !defined(TESSERA_ON_GPU)
namespace cuda {

// The library's product as documented in the header, in plain loops.
void library_product(const LibraryProduct& p) {
  const emulation::Reach reach;
  const bool with_bias =
      p.epilogue == LibraryEpilogue::bias || p.epilogue == LibraryEpilogue::gelu_tanh_bias;
  const bool gelu =
      p.epilogue == LibraryEpilogue::gelu_tanh || p.epilogue == LibraryEpilogue::gelu_tanh_bias;
  for (int64_t t = 0; t < p.rows; ++t)
    for (int64_t j = 0; j < p.n; ++j) {
      double sum = 0;
      for (int64_t i = 0; i < p.k; ++i) {
        float x[1], w[1];
        load<1>(p.x, p.dtype, t * p.x_stride + i, x);
        load<1>(p.w, p.dtype, j * p.k + i, w);
        sum += double{x[0]} * w[0];
      }
      float y[1] = {0}, v[1] = {static_cast<float>(sum)};
      if (p.beta != 0) load<1>(p.y, p.y_dtype, t * p.y_stride + j, y);
      v[0] += p.beta * y[0] + (with_bias ? p.bias[j] : 0);
      if (gelu) v[0] = gelu_tanh(v[0]);
      store<1>(p.y, p.y_dtype, t * p.y_stride + j, v);
    }
}

}  // namespace cuda
#endif
namespace {

using tensor::DType;
using tensor::Tensor;

TEST(CudaMatmul, EveryEpilogueEqualsTheReference) {
  for (int activation = 0; activation <= int(Activation::swiglu); ++activation)
    for (int parts = 0; parts < 16; ++parts)
      for (int types = 0; types < 8; ++types)
        for (auto [rows, n, k] : {std::array<int, 3>{3, 16, 24}, {5, 19, 33}, {0, 8, 8}}) {
          const auto kind = [&](int bit) { return types >> bit & 1 ? DType::bf16 : DType::f32; };
          const MatmulProblem p{rows,
                                n,
                                k,
                                kind(0),
                                kind(1),
                                kind(2),
                                Activation(activation),
                                (parts & 1) != 0,
                                (parts & 2) != 0,
                                (parts & 4) != 0,
                                (parts & 8) != 0};
          ASSERT_LT(
              worst_difference(run(kThere, cuda::matmul, p), run(kHost, reference::matmul, p)),
              tolerance(p.y, 1e-5))
              << activation << " " << parts << " " << types << " " << n;
        }
}

TEST(CudaMatmul, ALowRankChangeIsAddedToTheSums) {
  for (const Activation activation : {Activation::none, Activation::gelu_tanh, Activation::swiglu})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (auto [rows, n, k, rank] :
           {std::array<int, 4>{3, 16, 24, 4}, {5, 19, 33, 1}, {70, 32, 64, 16}}) {
        MatmulProblem p{rows, n, k, dtype, dtype, dtype, activation, true, true, true, false};
        p.rank = rank;
        EXPECT_LT(worst_difference(run(kThere, cuda::matmul, p), run(kHost, reference::matmul, p)),
                  tolerance(dtype, 1e-5))
            << int(activation) << " " << n;
      }
}

// Expanded to bf16 with their scales, so each weight is rounded once.
TEST(CudaMatmul, WeightsInInt8AreExpanded) {
  for (const Activation activation : {Activation::none, Activation::gelu_tanh, Activation::swiglu})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (auto [rows, n, k, rank] :
           {std::array<int, 4>{3, 16, 24, 0}, {5, 19, 33, 2}, {70, 32, 64, 4}, {0, 8, 8, 0}}) {
        MatmulProblem p{rows, n, k, dtype, DType::i8, dtype, activation, true, true, true, false};
        p.rank = rank;
        const auto once = [&] { return run(kThere, cuda::matmul, p); };
        const Tensor got = once();
        EXPECT_LT(worst_difference(got, run(kHost, reference::matmul, p)), 3e-2)
            << int(activation) << " " << n;
        EXPECT_TRUE(same_bits(again(once), got)) << n;
      }
}

#if defined(TESSERA_ON_GPU)
// Products of the library: no claim on their rows, but the same call gives the same bits.
TEST(CudaMatmul, LargeProductsEqualTheReferenceAndRepeat) {
  for (auto [rows, n, k] : {std::array<int, 3>{300, 1152, 520}, {77, 640, 1024}, {1024, 384, 384}})
    for (DType dtype : {DType::f32, DType::bf16})
      for (Activation activation : {Activation::none, Activation::gelu_tanh, Activation::swiglu}) {
        const MatmulProblem p{rows, n, k, dtype, dtype, dtype, activation, true, true, true, false};
        const auto once = [&] { return run(kThere, cuda::matmul, p); };
        const Tensor got = once();
        EXPECT_LT(worst_difference(got, run(kHost, reference::matmul, p)), tolerance(dtype, 1e-4))
            << rows << " " << int(activation);
        EXPECT_TRUE(same_bits(again(once), got)) << rows << " " << int(activation);
      }
}
#endif

TEST(CudaMatmulPlan, TheLibraryFinishesWhatItCan) {
  const PackedWeight w{.n = 8, .k = 8, .dtype = DType::bf16, .data = {}};
  const float bias[8] = {};
  MatmulArgs args{.x_dtype = DType::bf16, .weight = &w, .y_dtype = DType::bf16};
  EXPECT_TRUE(cuda::matmul_plan(args).complete);
  args.epilogue.bias = bias;
  EXPECT_FALSE(cuda::matmul_plan(args).complete);
  args.y_dtype = DType::f32;
  EXPECT_EQ(cuda::matmul_plan(args).inside, cuda::LibraryEpilogue::bias);
  args.epilogue.activation = Activation::gelu_tanh;
  EXPECT_EQ(cuda::matmul_plan(args).inside, cuda::LibraryEpilogue::gelu_tanh_bias);
  args.epilogue.activation = Activation::gelu_erf;
  EXPECT_FALSE(cuda::matmul_plan(args).complete);
  args.epilogue.activation = Activation::none;
  args.epilogue.gate = bias;
  EXPECT_FALSE(cuda::matmul_plan(args).complete);
  args.x_dtype = DType::f32;
  EXPECT_TRUE(cuda::matmul_plan(args).converts);
}

}  // namespace
}  // namespace tessera::kernels

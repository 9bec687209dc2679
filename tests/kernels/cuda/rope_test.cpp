#include "kernels/cuda/leg.h"
// Include leg.h first: the sources below depend on the leg.
#include <gtest/gtest.h>

#include "kernels/closeness.h"
#include "kernels/random_values.h"
#include "kernels/rope.h"
#if !defined(TESSERA_ON_GPU)
#include "kernels/cuda/rope.cu"
#endif

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

Tensor run(const Where& at, void (*kernel)(const RopeArgs&), int64_t tokens, int64_t pairs,
           DType dtype, bool interleaved, bool in_place, bool words) {
  const int64_t heads = 3, dim = words ? 40 : 22, stride = words ? 128 : 70;
  const Tensor x = at(random_tensor({tokens, stride}, dtype, 1));
  const Tensor cos = at(random_tensor({tokens, pairs}, DType::f32, 2));
  const Tensor sin = at(random_tensor({tokens, pairs}, DType::f32, 3));
  const Tensor y = in_place ? x : Tensor::zeros({tokens, stride}, dtype, at.device);
  kernel({.x = x.raw(),
          .x_stride = stride,
          .y = y.raw(),
          .y_stride = stride,
          .dtype = dtype,
          .tokens = tokens,
          .heads = heads,
          .head_dim = dim,
          .pairs = pairs,
          .cos = cos.data<float>(),
          .sin = sin.data<float>(),
          .interleaved = interleaved});
  return here(y);
}

TEST(CudaRope, EqualsTheReference) {
  for (int64_t tokens : problems<int64_t>({0, 1, 9}, {4099}))
    for (int64_t pairs : {0, 1, 8, 11})
      for (DType dtype : {DType::f32, DType::bf16})
        for (bool interleaved : {false, true})
          for (bool in_place : {false, true})
            for (bool words : {false, true})
              EXPECT_LT(worst_difference(run(kThere, cuda::rope, tokens, pairs, dtype, interleaved,
                                             in_place, words),
                                         run(kHost, reference::rope, tokens, pairs, dtype,
                                             interleaved, in_place, words)),
                        tolerance(dtype, 1e-6))
                  << pairs << interleaved << words;
}

// The values of fewer tokens begin those of more.
TEST(CudaRope, ATokenDoesNotDependOnOthers) {
  for (int pairs : {8, 11}) {
    const Tensor all = run(kThere, cuda::rope, 50, pairs, DType::bf16, true, false, true);
    EXPECT_TRUE(same_bits(run(kThere, cuda::rope, 23, pairs, DType::bf16, true, false, true),
                          all.slice(0, 0, 23)));
  }
}

}  // namespace
}  // namespace tessera::kernels

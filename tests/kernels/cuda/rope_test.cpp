#include "kernels/cuda/emulation.h"
// The emulation comes first: it is what the source below is compiled with.
#include <gtest/gtest.h>

#include "kernels/closeness.h"
#include "kernels/cuda/rope.cu"
#include "kernels/random_values.h"

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

Tensor run(void (*kernel)(const RopeArgs&), int64_t tokens, int64_t pairs, DType dtype,
           bool interleaved, bool in_place) {
  const int64_t heads = 3, dim = 22, stride = 70;
  const Tensor x = random_tensor({tokens, stride}, dtype, 1);
  const Tensor cos = random_tensor({tokens, pairs}, DType::f32, 2);
  const Tensor sin = random_tensor({tokens, pairs}, DType::f32, 3);
  const Tensor y = in_place ? x : Tensor::zeros({tokens, stride}, dtype);
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
  return y;
}

TEST(CudaRope, EqualsTheReference) {
  for (int64_t tokens : {0, 1, 9})
    for (int64_t pairs : {1, 8, 11})
      for (DType dtype : {DType::f32, DType::bf16})
        for (bool interleaved : {false, true})
          for (bool in_place : {false, true})
            EXPECT_LT(
                worst_difference(run(emulated::rope, tokens, pairs, dtype, interleaved, in_place),
                                 run(reference::rope, tokens, pairs, dtype, interleaved, in_place)),
                tolerance(dtype, 1e-6));
}

}  // namespace
}  // namespace tessera::kernels

#include "kernels/cuda/emulation.h"
// The emulation comes first: it is what the source below is compiled with.
#include <gtest/gtest.h>

#include "kernels/closeness.h"
#include "kernels/cuda/group_norm.cu"
#include "kernels/random_values.h"

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

Tensor moments(void (*kernel)(const ChannelMomentsArgs&), const Tensor& x) {
  const Tensor out = Tensor::zeros({x.size(0), 2, x.size(2)}, DType::f32);
  kernel({.x = x.raw(),
          .dtype = x.dtype(),
          .x_stride = x.stride(0),
          .rows = x.size(0),
          .pixels = x.size(1),
          .channels = x.size(2),
          .moments = out.data<float>()});
  return out;
}

Tensor affine(void (*kernel)(const ChannelAffineArgs&), const Tensor& x, bool silu) {
  const Tensor factors = random_tensor({x.size(0), 2, x.size(2)}, DType::f32, 7);
  const Tensor y = Tensor::zeros(x.shape(), x.dtype());
  kernel({.x = x.raw(),
          .dtype = x.dtype(),
          .x_stride = x.stride(0),
          .rows = x.size(0),
          .pixels = x.size(1),
          .channels = x.size(2),
          .scale_shift = factors.data<float>(),
          .silu = silu,
          .y = y.raw()});
  return y;
}

TEST(CudaGroupNorm, MomentsEqualTheReference) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (auto [rows, pixels, channels] : {std::array<int, 3>{1, 1, 1},
                                          {2, 63, 5},
                                          {2, 64, 40},
                                          {1, 1000, 130},
                                          {3, 65, 8},
                                          {0, 4, 4}}) {
      const Tensor x = random_tensor({rows, pixels, channels}, dtype, 5, 3);
      EXPECT_LT(worst_difference(moments(emulated::channel_moments, x),
                                 moments(reference::channel_moments, x)),
                2e-5);
    }
}

TEST(CudaGroupNorm, MomentsDoNotDependOnTheOrderOfThreads) {
  const Tensor x = random_tensor({2, 700, 33}, DType::bf16, 5);
  const Tensor forwards = moments(emulated::channel_moments, x);
  emulation::backwards = true;
  EXPECT_TRUE(same_bits(moments(emulated::channel_moments, x), forwards));
  emulation::backwards = false;
}

TEST(CudaGroupNorm, AffineEqualsTheReference) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (bool silu : {false, true})
      for (auto [rows, pixels, channels] :
           {std::array<int, 3>{1, 1, 1}, {2, 33, 5}, {2, 30, 40}, {0, 4, 4}}) {
        const Tensor x = random_tensor({rows, pixels, channels}, dtype, 5);
        EXPECT_LT(worst_difference(affine(emulated::channel_affine, x, silu),
                                   affine(reference::channel_affine, x, silu)),
                  tolerance(dtype, 2e-6));
      }
}

TEST(CudaGroupNorm, ScaleAndShiftEqualTheReference) {
  for (auto [rows, channels, groups] : {std::array<int, 3>{1, 4, 4}, {3, 96, 32}, {0, 8, 2}}) {
    const Tensor given = random_tensor({rows, 2, channels}, DType::f32, 3);
    for (int64_t i = 0; i < given.elements(); ++i)
      given.data<float>()[i] = std::abs(given.data<float>()[i]);
    const Tensor weight = random_tensor({2, channels}, DType::f32, 4);
    const auto run = [&](void (*kernel)(const GroupScaleShiftArgs&)) {
      const Tensor out = Tensor::zeros({rows, 2, channels}, DType::f32);
      kernel({.moments = given.data<float>(),
              .rows = rows,
              .channels = channels,
              .groups = groups,
              .weight = weight.row<float>(0),
              .bias = weight.row<float>(1),
              .eps = 1e-5f,
              .scale_shift = out.data<float>()});
      return out;
    };
    EXPECT_LT(worst_difference(run(emulated::group_scale_shift), run(reference::group_scale_shift)),
              1e-6);
  }
}

}  // namespace
}  // namespace tessera::kernels

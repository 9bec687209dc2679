#include "kernels/cuda/leg.h"
// Include leg.h first: the sources below depend on the leg.
#include <gtest/gtest.h>

#include "kernels/closeness.h"
#include "kernels/group_norm.h"
#include "kernels/random_values.h"
#if !defined(TESSERA_ON_GPU)
#include "kernels/cuda/group_norm.cu"
#endif

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

Tensor moments(const Where& at, void (*kernel)(const ChannelMomentsArgs&), const Tensor& given) {
  const Tensor x = at(given), out = Tensor::zeros({x.size(0), 2, x.size(2)}, DType::f32, at.device);
  kernel({.x = x.raw(),
          .dtype = x.dtype(),
          .x_stride = x.stride(0),
          .rows = x.size(0),
          .pixels = x.size(1),
          .channels = x.size(2),
          .moments = out.data<float>()});
  return here(out);
}

Tensor affine(const Where& at, void (*kernel)(const ChannelAffineArgs&), const Tensor& given,
              bool silu) {
  const Tensor x = at(given), factors = at(random_tensor({x.size(0), 2, x.size(2)}, DType::f32, 7));
  const Tensor y = Tensor::zeros(x.shape(), x.dtype(), at.device);
  kernel({.x = x.raw(),
          .dtype = x.dtype(),
          .x_stride = x.stride(0),
          .rows = x.size(0),
          .pixels = x.size(1),
          .channels = x.size(2),
          .scale_shift = factors.data<float>(),
          .silu = silu,
          .y = y.raw()});
  return here(y);
}

TEST(CudaGroupNorm, MomentsEqualTheReference) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (auto [rows, pixels, channels] : problems<std::array<int, 3>>(
             {{1, 1, 1}, {2, 63, 5}, {2, 64, 40}, {1, 1000, 130}, {3, 65, 8}, {0, 4, 4}},
             {{1, 65536, 128}, {2, 4096, 512}})) {
      const Tensor x = random_tensor({rows, pixels, channels}, dtype, 5, 3);
      EXPECT_LT(worst_difference(moments(kThere, cuda::channel_moments, x),
                                 moments(kHost, reference::channel_moments, x)),
                2e-5);
    }
}

TEST(CudaGroupNorm, MomentsDoNotDependOnTheOrderOfThreads) {
  const Tensor x = random_tensor({2, 700, 33}, DType::bf16, 5);
  const auto once = [&] { return moments(kThere, cuda::channel_moments, x); };
  EXPECT_TRUE(same_bits(again(once), once()));
}

TEST(CudaGroupNorm, AffineEqualsTheReference) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (bool silu : {false, true})
      for (auto [rows, pixels, channels] :
           {std::array<int, 3>{1, 1, 1}, {2, 33, 5}, {2, 30, 40}, {0, 4, 4}}) {
        const Tensor x = random_tensor({rows, pixels, channels}, dtype, 5);
        EXPECT_LT(worst_difference(affine(kThere, cuda::channel_affine, x, silu),
                                   affine(kHost, reference::channel_affine, x, silu)),
                  tolerance(dtype, 2e-6));
      }
}

TEST(CudaGroupNorm, ScaleAndShiftEqualTheReference) {
  for (const auto& size : {std::array<int, 3>{1, 4, 4}, {3, 96, 32}, {0, 8, 2}}) {
    const int rows = size[0], channels = size[1], groups = size[2];
    const Tensor given = random_tensor({rows, 2, channels}, DType::f32, 3);
    for (int64_t i = 0; i < given.elements(); ++i)
      given.data<float>()[i] = std::abs(given.data<float>()[i]);
    const Tensor weight = random_tensor({2, channels}, DType::f32, 4);
    const auto run = [&](const Where& at, void (*kernel)(const GroupScaleShiftArgs&)) {
      const Tensor out = Tensor::zeros({rows, 2, channels}, DType::f32, at.device);
      const Tensor moments = at(given), w = at(weight);
      kernel({.moments = moments.data<float>(),
              .rows = rows,
              .channels = channels,
              .groups = groups,
              .weight = w.row<float>(0),
              .bias = w.row<float>(1),
              .eps = 1e-5f,
              .scale_shift = out.data<float>()});
      return here(out);
    };
    EXPECT_LT(worst_difference(run(kThere, cuda::group_scale_shift),
                               run(kHost, reference::group_scale_shift)),
              1e-6);
  }
}

}  // namespace
}  // namespace tessera::kernels

#include "kernels/cuda/emulation.h"
// The emulation comes first: it is what the sources below are compiled with.
#include <gtest/gtest.h>

#include "kernels/closeness.h"
#include "kernels/cuda/biased_attention.cu"
#include "kernels/cuda/copy.cu"
#include "kernels/cuda/plane_affine.cu"
#include "kernels/cuda/waves.cu"
#include "kernels/random_values.h"

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

TEST(CudaCopy, PermutesRepeatsAndKeepsWhatLiesBetween) {
  for (DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = random_tensor({3, 5, 7}, dtype, 1);
    const auto run = [&](void (*kernel)(const CopyArgs&)) {
      const Tensor y = Tensor::zeros({7, 2, 3, 6}, dtype);
      CopyArgs a{.x = x.raw(), .y = y.raw(), .element = size_of(dtype), .axes = 4};
      a.size = {7, 2, 3, 5};
      a.x_stride = {1, 0, 35, 7};
      a.y_stride = {36, 18, 6, 1};
      kernel(a);
      return y;
    };
    EXPECT_TRUE(same_bits(run(emulated::copy), run(reference::copy)));
  }
}

TEST(CudaMoveRows, EqualsTheReference) {
  const Tensor table = random_tensor({9, 40}, DType::bf16, 1);
  const std::vector<int32_t> from{8, 0, -1, 3}, to{5, 1, 0, 4};
  for (const int32_t* sources : {from.data(), static_cast<const int32_t*>(nullptr)})
    for (const int32_t* targets : {to.data(), static_cast<const int32_t*>(nullptr)}) {
      const auto run = [&](void (*kernel)(const MoveRowsArgs&)) {
        const Tensor y = random_tensor({6, 35}, DType::f32, 2);
        kernel({.x = table.raw(),
                .x_dtype = DType::bf16,
                .x_stride = 40,
                .from = sources,
                .y = y.raw(),
                .y_stride = 35,
                .to = targets,
                .rows = 4,
                .columns = 33});
        return y;
      };
      EXPECT_TRUE(same_bits(run(emulated::move_rows), run(reference::move_rows)));
    }
}

TEST(CudaWaves, EqualTheReference) {
  const Tensor t = random_tensor({3}, DType::f32, 1),
               frequency = random_tensor({21}, DType::f32, 2);
  for (bool sin_first : {false, true}) {
    const auto run = [&](void (*kernel)(const WavesArgs&)) {
      const Tensor y = Tensor::zeros({3, 45}, DType::f32);
      WavesArgs a{};
      a.t = t.data<float>();
      a.rows = 3;
      a.frequency = frequency.data<float>();
      a.half = 21;
      a.scale = 10;
      a.sin_first = sin_first;
      a.y = y.data<float>();
      a.y_stride = 45;
      kernel(a);
      return y;
    };
    EXPECT_LT(worst_difference(run(emulated::waves), run(reference::waves)), 1e-6);
  }
}

TEST(CudaPlaneAffine, EqualsTheReference) {
  const PlaneSize size{5, 6, 7}, field{3, 3, 2};
  for (DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = random_tensor({5, 6, 7, 10}, dtype, 1);
    const Tensor factors = random_tensor({2, 10}, DType::f32, 2);
    const Tensor gain = random_tensor({3, 3, 2, 10}, DType::f32, 3);
    const Tensor bias = random_tensor({3, 3, 2, 10}, DType::f32, 4);
    const auto run = [&](void (*kernel)(const PlaneAffineArgs&)) {
      const Tensor y = Tensor::zeros(x.shape(), dtype);
      kernel({.x = x.raw(),
              .dtype = dtype,
              .size = size,
              .field = field,
              .channels = 10,
              .scale_shift = factors.data<float>(),
              .gain = gain.data<float>(),
              .bias = bias.data<float>(),
              .y = y.raw()});
      return y;
    };
    EXPECT_LT(worst_difference(run(emulated::plane_affine), run(reference::plane_affine)),
              tolerance(dtype, 2e-6));
  }
}

TEST(CudaBiasedAttention, EqualsTheReference) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (auto [tokens, heads, dim, visible] :
         {std::array<int, 4>{1, 1, 8, 1}, {37, 3, 12, 30}, {140, 1, 64, 140}}) {
      const int64_t width = heads * dim;
      const Tensor all = random_tensor({tokens, 3 * width}, dtype, 1, 0.6f);
      const Tensor bias = random_tensor({heads, 2 * tokens - 1}, DType::f32, 2);
      const auto run = [&](void (*kernel)(const BiasedAttentionArgs&)) {
        const Tensor y = Tensor::zeros({tokens, width}, dtype);
        const auto* base = all.data<std::byte>();
        kernel({.q = base,
                .k = base + width * size_of(dtype),
                .v = base + 2 * width * size_of(dtype),
                .q_stride = 3 * width,
                .k_stride = 3 * width,
                .v_stride = 3 * width,
                .dtype = dtype,
                .tokens = tokens,
                .heads = heads,
                .head_dim = dim,
                .visible = visible,
                .bias = bias.data<float>(),
                .bias_stride = 2 * tokens - 1,
                .out = y.raw(),
                .out_stride = width});
        return y;
      };
      EXPECT_LT(worst_difference(run(emulated::biased_attention), run(reference::biased_attention)),
                tolerance(dtype, 1e-5));
    }
}

}  // namespace
}  // namespace tessera::kernels

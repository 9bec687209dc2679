#include "kernels/cuda/leg.h"
// Include leg.h first: the sources below depend on the leg.
#include <gtest/gtest.h>

#include "kernels/biased_attention.h"
#include "kernels/closeness.h"
#include "kernels/copy.h"
#include "kernels/plane_affine.h"
#include "kernels/random_values.h"
#include "kernels/waves.h"
#if !defined(TESSERA_ON_GPU)
#include "kernels/cuda/biased_attention.cu"
#include "kernels/cuda/copy.cu"
#include "kernels/cuda/plane_affine.cu"
#include "kernels/cuda/waves.cu"
#endif

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

TEST(CudaCopy, PermutesRepeatsAndKeepsWhatLiesBetween) {
  for (DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = random_tensor({3, 5, 7}, dtype, 1);
    const auto run = [&](const Where& at, void (*kernel)(const CopyArgs&)) {
      const Tensor from = at(x), y = Tensor::zeros({7, 2, 3, 6}, dtype, at.device);
      CopyArgs a{.x = from.raw(), .y = y.raw(), .element = size_of(dtype), .axes = 4};
      a.size = {7, 2, 3, 5};
      a.x_stride = {1, 0, 35, 7};
      a.y_stride = {36, 18, 6, 1};
      kernel(a);
      return here(y);
    };
    EXPECT_TRUE(same_bits(run(kThere, cuda::copy), run(kHost, reference::copy)));
  }
}

TEST(CudaCopy, TakesSixteenBytesAtATimeWhereTheyLieTogether) {
  for (int64_t at : {0, 1, 8})  // offsets in the whole; some are not aligned
    for (DType dtype : {DType::f32, DType::bf16}) {
      const Tensor x = random_tensor({3, 5, 40}, dtype, 1);
      const auto run = [&](const Where& where, void (*kernel)(const CopyArgs&)) {
        const Tensor from = where(x), y = Tensor::zeros({5, 3, 48}, dtype, where.device);
        CopyArgs a{.x = from.raw(),
                   .y = y.data<std::byte>() + at * size_of(dtype),
                   .element = size_of(dtype),
                   .axes = 3};
        a.size = {5, 3, 40};
        a.x_stride = {40, 200, 1};
        a.y_stride = {144, 48, 1};
        kernel(a);
        return here(y);
      };
      EXPECT_TRUE(same_bits(run(kThere, cuda::copy), run(kHost, reference::copy))) << at;
    }
}

#if !defined(TESSERA_ON_GPU)
TEST(CudaDivision, EqualsTheQuotient) {
  for (int64_t divisor : {1, 2, 3, 5, 7, 8, 72, 255, 641, 65535, 65537, 0x3fffffff, 0x7fffffff})
    for (int64_t n : {int64_t{0}, divisor - 1, divisor, divisor + 1, 5 * divisor - 1,
                      int64_t{0x7ffffffe}, int64_t{0x7fffffff}}) {
      if (n > 0x7fffffff) continue;
      EXPECT_EQ(cuda::Divisor(divisor).quotient(static_cast<uint32_t>(n)), n / divisor)
          << n << " " << divisor;
    }
  for (uint32_t divisor = 1; divisor < 3000; divisor += 7)
    for (uint32_t n = 0; n < 0x7fffffffu - 10'000'019u; n += 10'000'019u)
      ASSERT_EQ(cuda::Divisor(divisor).quotient(n), n / divisor) << n << " " << divisor;
}

TEST(CudaDivision, RunsOfRowsCoverThemAll) {
  for (int64_t row : {int64_t{3}, int64_t{1} << 29, (int64_t{1} << 31) - 1}) {
    int64_t next = 0;
    cuda::each_run_of_rows(9, row, [&](int64_t first, int64_t count) {
      EXPECT_EQ(first, next);
      EXPECT_LE(count * row, 0x7fffffff);
      next = first + count;
    });
    EXPECT_EQ(next, 9);
  }
  cuda::each_run_of_rows(9, 0, [](int64_t, int64_t) { FAIL(); });
  cuda::each_run_of_rows(0, 9, [](int64_t, int64_t) { FAIL(); });
}
#endif

TEST(CudaMoveRows, EqualsTheReference) {
  for (int64_t columns : {33, 32}) {
    const Tensor table = random_tensor({9, 40}, DType::bf16, 1);
    const std::vector<int32_t> from{8, 0, -1, 3}, to{5, 1, 0, 4};
    for (bool given_from : {true, false})
      for (bool given_to : {true, false}) {
        const auto run = [&](const Where& at, void (*kernel)(const MoveRowsArgs&)) {
          const Tensor x = at(table), sources = at(from), targets = at(to);
          const Tensor y = at(random_tensor({6, 36}, DType::f32, 2));
          kernel({.x = x.raw(),
                  .x_dtype = DType::bf16,
                  .x_stride = 40,
                  .from = given_from ? static_cast<const int32_t*>(sources.raw()) : nullptr,
                  .y = y.raw(),
                  .y_stride = 36,
                  .to = given_to ? static_cast<const int32_t*>(targets.raw()) : nullptr,
                  .rows = 4,
                  .columns = columns});
          return here(y);
        };
        EXPECT_TRUE(same_bits(run(kThere, cuda::move_rows), run(kHost, reference::move_rows)));
      }
  }
}

TEST(CudaWaves, EqualTheReference) {
  const Tensor t = random_tensor({3}, DType::f32, 1),
               frequency = random_tensor({21}, DType::f32, 2);
  for (bool sin_first : {false, true}) {
    const auto run = [&](const Where& at, void (*kernel)(const WavesArgs&)) {
      const Tensor times = at(t), waves = at(frequency);
      const Tensor y = Tensor::zeros({3, 45}, DType::f32, at.device);
      WavesArgs a{};
      a.t = times.data<float>();
      a.rows = 3;
      a.frequency = waves.data<float>();
      a.half = 21;
      a.scale = 10;
      a.sin_first = sin_first;
      a.y = y.data<float>();
      a.y_stride = 45;
      kernel(a);
      return here(y);
    };
    EXPECT_LT(worst_difference(run(kThere, cuda::waves), run(kHost, reference::waves)), 1e-6);
  }
}

TEST(CudaPlaneAffine, EqualsTheReference) {
  const PlaneSize size{5, 6, 7}, field{3, 3, 2};
  for (DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = random_tensor({5, 6, 7, 10}, dtype, 1);
    const Tensor factors = random_tensor({2, 10}, DType::f32, 2);
    const Tensor gain = random_tensor({3, 3, 2, 10}, DType::f32, 3);
    const Tensor bias = random_tensor({3, 3, 2, 10}, DType::f32, 4);
    const auto run = [&](const Where& at, void (*kernel)(const PlaneAffineArgs&)) {
      const Tensor from = at(x), f = at(factors), g = at(gain), b = at(bias);
      const Tensor y = Tensor::zeros(x.shape(), dtype, at.device);
      kernel({.x = from.raw(),
              .dtype = dtype,
              .size = size,
              .field = field,
              .channels = 10,
              .scale_shift = f.data<float>(),
              .gain = g.data<float>(),
              .bias = b.data<float>(),
              .y = y.raw()});
      return here(y);
    };
    EXPECT_LT(
        worst_difference(run(kThere, cuda::plane_affine), run(kHost, reference::plane_affine)),
        tolerance(dtype, 2e-6));
  }
}

TEST(CudaBiasedAttention, EqualsTheReference) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (const auto& size : problems<std::array<int, 4>>({{1, 1, 8, 1},
                                                          {37, 3, 12, 30},
                                                          {140, 1, 64, 140},
                                                          {130, 2, 64, 70},
                                                          {70, 1, 96, 70},
                                                          {65, 2, 300, 65},
                                                          {65, 1, 256, 7}},
                                                         {{512, 4, 64, 500}, {512, 16, 64, 512}})) {
      const int tokens = size[0], heads = size[1], dim = size[2], visible = size[3];
      const int64_t width = heads * dim;
      const Tensor all = random_tensor({tokens, 3 * width}, dtype, 1, 0.6f);
      const Tensor bias = random_tensor({heads, 2 * tokens - 1}, DType::f32, 2);
      const auto run = [&](const Where& at, void (*kernel)(const BiasedAttentionArgs&)) {
        const Tensor fused = at(all), b = at(bias);
        const Tensor y = Tensor::zeros({tokens, width}, dtype, at.device);
        const auto* base = fused.data<std::byte>();
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
                .bias = b.data<float>(),
                .bias_stride = 2 * tokens - 1,
                .out = y.raw(),
                .out_stride = width});
        return here(y);
      };
      const Tensor got = run(kThere, cuda::biased_attention);
      EXPECT_LT(worst_difference(got, run(kHost, reference::biased_attention)),
                tolerance(dtype, 1e-5))
          << tokens << " " << dim;
      EXPECT_TRUE(same_bits(again([&] { return run(kThere, cuda::biased_attention); }), got));
    }
}

}  // namespace
}  // namespace tessera::kernels

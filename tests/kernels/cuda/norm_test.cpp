#include "kernels/cuda/leg.h"
// Include leg.h first: the sources below depend on the leg.
#include <gtest/gtest.h>

#include "kernels/closeness.h"
#include "kernels/norm.h"
#include "kernels/random_values.h"
#include "tessera/error.h"
#if !defined(TESSERA_ON_GPU)
#include "kernels/cuda/norm.cu"
#endif

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

struct Problem {
  int64_t tokens, groups, width;
  DType dtype;
  bool centred, affine, modulated, turned = false;
};

Tensor run(const Where& at, void (*kernel)(const NormArgs&), const Problem& p, int64_t first = 0) {
  const int64_t channels = p.groups * p.width;
  const Tensor x = at(random_tensor({p.tokens, channels}, p.dtype, 1, 2));
  const Tensor w = at(random_tensor({2, p.width}, DType::f32, 2));
  const Tensor s = at(random_tensor({4, channels}, DType::f32, 3));
  const Tensor y = Tensor::zeros({p.tokens - first, channels}, p.dtype, at.device);
  std::vector<int32_t> row_of;
  for (int64_t t = first; t < p.tokens; ++t) row_of.push_back(static_cast<int32_t>(t % 2));
  const Tensor rows = at(row_of);
  NormArgs a{.x = x.data<std::byte>() + first * channels * size_of(p.dtype),
             .x_stride = channels,
             .y = y.raw(),
             .y_stride = channels,
             .dtype = p.dtype,
             .tokens = p.tokens - first,
             .groups = p.groups,
             .width = p.width,
             .centred = p.centred};
  if (p.affine) {
    a.weight = w.row<float>(0);
    a.bias = w.row<float>(1);
  }
  if (p.modulated) {
    a.shift = s.row<float>(0);
    a.scale = s.row<float>(2);
    a.shift_stride = a.scale_stride = channels;
    a.row_of = static_cast<const int32_t*>(rows.raw());
  }
  const Tensor angles = at(random_tensor({2 * p.tokens, p.width / 2 + 1}, DType::f32, 4));
  if (p.turned) {
    a.cos = angles.data<float>();
    a.sin = a.cos + p.tokens * (p.width / 2);
  }
  kernel(a);
  return here(y);
}

TEST(CudaNorm, TurnsWhatItHasNormalised) {
  for (int64_t width : {8, 72, 128, 520})
    for (DType dtype : {DType::f32, DType::bf16}) {
      const Problem p{19, 3, width, dtype, false, true, false, true};
      const auto once = [&] { return run(kThere, cuda::norm, p); };
      EXPECT_LT(worst_difference(once(), run(kHost, reference::norm, p)), tolerance(dtype, 1e-5))
          << width;
      EXPECT_TRUE(same_bits(again(once), once()));
    }
  EXPECT_THROW(run(kThere, cuda::norm, {19, 3, 36, DType::f32, false, true, false, true}), Error);
}

TEST(CudaNorm, EqualsTheReferenceAtOddSizes) {
  for (int64_t width : {1, 7, 16, 33, 64, 72, 128, 520, 1001, 1152, 5000, 5001, 8200})
    for (int64_t groups : {1, 3})
      for (int kind = 0; kind < 8; ++kind) {
        if (width > 1000 && groups > 1) continue;
        const Problem p{width > 1000 ? 2 : 7,
                        groups,
                        width,
                        kind & 1 ? DType::bf16 : DType::f32,
                        (kind & 2) != 0,
                        (kind & 4) != 0,
                        kind % 3 != 0};
        ASSERT_LT(worst_difference(run(kThere, cuda::norm, p), run(kHost, reference::norm, p)),
                  tolerance(p.dtype, 2e-5))
            << width << " " << groups << " " << kind;
      }
}

TEST(CudaNorm, ARowDoesNotDependOnOthersOrOnTheOrderOfThreads) {
  for (int64_t width : {72, 1152}) {
    const Problem p{9, 1, width, DType::bf16, true, true, false};
    const Tensor all = run(kThere, cuda::norm, p), rest = run(kThere, cuda::norm, p, 4);
    EXPECT_TRUE(same_bits(rest, all.slice(0, 4, 9)));
    EXPECT_TRUE(same_bits(again([&] { return run(kThere, cuda::norm, p); }), all));
  }
}

TEST(CudaNorm, ZeroTokensAreLegalAndTooWideRowsAreNot) {
  run(kThere, cuda::norm, {0, 1, 64, DType::f32, true, true, true});
  EXPECT_ANY_THROW(run(kThere, cuda::norm, {1, 1, 40000, DType::f32, true, false, false}));
}

}  // namespace
}  // namespace tessera::kernels

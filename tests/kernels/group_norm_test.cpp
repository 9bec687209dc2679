#include "kernels/group_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/random_values.h"
#include "kernels/table.h"
#include "tensor/scope.h"

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr DType kDTypes[] = {DType::f32, DType::bf16, DType::f16};

struct Size {
  int64_t rows, pixels, channels;
};
constexpr Size kSizes[] = {{0, 5, 8}, {1, 1, 3}, {2, 77, 20}, {1, 1000, 65}, {3, 256, 16}};

Tensor moments_of(const Tensor& x, Isa isa) {
  Tensor m = Tensor::empty({x.size(0), 2, x.size(2)}, DType::f32);
  cpu_table(isa).channel_moments({.x = x.raw(),
                                  .dtype = x.dtype(),
                                  .x_stride = x.stride(0),
                                  .rows = x.size(0),
                                  .pixels = x.size(1),
                                  .channels = x.size(2),
                                  .moments = m.data<float>()});
  return m;
}

Tensor affine_of(const Tensor& x, const Tensor& scale_shift, bool silu, Isa isa) {
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  cpu_table(isa).channel_affine({.x = x.raw(),
                                 .dtype = x.dtype(),
                                 .x_stride = x.stride(0),
                                 .rows = x.size(0),
                                 .pixels = x.size(1),
                                 .channels = x.size(2),
                                 .scale_shift = scale_shift.data<float>(),
                                 .silu = silu,
                                 .y = y.raw()});
  return y;
}

void expect_near(const Tensor& got, const Tensor& want, double absolute, double relative) {
  const std::vector<float> a = got.to_floats(), b = want.to_floats();
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(a[i], b[i], absolute + relative * std::abs(b[i])) << "element " << i;
}

TEST(GroupNorm, MomentsEqualTheReferenceOnEveryInstructionSet) {
  for (Isa isa : available_isas())
    for (DType dtype : kDTypes)
      for (Size s : kSizes) {
        SCOPED_TRACE(name_of(isa));
        const Tensor x = random_tensor({s.rows, s.pixels, s.channels}, dtype, 1, 3);
        expect_near(moments_of(x, isa), moments_of(x, Isa::reference), 3e-6, 1e-5);
      }
}

TEST(GroupNorm, MomentsHoldFarFromZero) {
  Tensor x = random_tensor({1, 3000, 24}, DType::f32, 2, 0.01f);
  for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] += 100;
  for (Isa isa : available_isas())
    expect_near(moments_of(x, isa), moments_of(x, Isa::reference), 0, 2e-4);
}

TEST(GroupNorm, MomentsDoNotDependOnThreads) {
  const Tensor x = random_tensor({2, 3000, 40}, DType::bf16, 3);
  for (Isa isa : available_isas()) {
    const Tensor alone = moments_of(x, isa);
    base::ThreadPool pool(3);
    tensor::Scope threaded;
    threaded.pool = &pool;
    const tensor::BindScope bind(threaded);
    const Tensor together = moments_of(x, isa);
    EXPECT_EQ(std::memcmp(alone.raw(), together.raw(), static_cast<size_t>(alone.bytes())), 0);
  }
}

TEST(GroupNorm, ScaleAndShiftNormaliseByGroups) {
  const std::vector<float> moments = {1, 3, 0, 10, 1, 2, 4, 0}, weight = {1, 2, 3, 4};
  std::vector<float> got(8);
  for (Isa isa : available_isas()) {
    cpu_table(isa).group_scale_shift({.moments = moments.data(),
                                      .rows = 1,
                                      .channels = 4,
                                      .groups = 2,
                                      .weight = weight.data(),
                                      .eps = 0,
                                      .scale_shift = got.data()});
    // Channels 0 and 1: mean 2, variance (1 + 2) / 2 + 1; channels 2 and 3: mean 5, variance 27.
    const double first = 1 / std::sqrt(2.5), second = 1 / std::sqrt(27.0);
    for (size_t c = 0; c < 4; ++c) {
      const double rate = c < 2 ? first : second, mean = c < 2 ? 2 : 5;
      EXPECT_NEAR(got[c], rate * weight[c], 1e-6);
      EXPECT_NEAR(got[4 + c], -mean * rate * weight[c], 1e-5);
    }
  }
}

TEST(GroupNorm, AffineEqualsTheReferenceOnEveryInstructionSet) {
  for (Isa isa : available_isas())
    for (DType dtype : kDTypes)
      for (bool silu : {false, true})
        for (Size s : kSizes) {
          SCOPED_TRACE(name_of(isa));
          const Tensor x = random_tensor({s.rows, s.pixels, s.channels}, dtype, 1, 3);
          const Tensor scale = random_tensor({s.rows, 2, s.channels}, DType::f32, 2);
          const double step = dtype == DType::f32 ? 2e-6 : dtype == DType::f16 ? 1e-3 : 8e-3;
          expect_near(affine_of(x, scale, silu, isa), affine_of(x, scale, silu, Isa::reference),
                      2e-6, step);
        }
}

}  // namespace
}  // namespace tessera::kernels

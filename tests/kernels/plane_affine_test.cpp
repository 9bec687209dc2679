#include "kernels/plane_affine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/random_values.h"
#include "kernels/table.h"

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

TEST(PlaneAffine, ReadsGainAndBiasAtTheNearestPlace) {
  const PlaneSize size{3, 4, 6}, field{2, 2, 3};
  for (Isa isa : available_isas())
    for (DType dtype : {DType::f32, DType::bf16}) {
      const Tensor x = random_tensor({3, 4, 6, 5}, dtype, 1);
      const Tensor scale_shift = random_tensor({2, 5}, DType::f32, 2);
      const Tensor gain = random_tensor({2, 2, 3, 5}, DType::f32, 3);
      const Tensor bias = random_tensor({2, 2, 3, 5}, DType::f32, 4);
      const Tensor y = Tensor::empty(x.shape(), dtype);
      cpu_table(isa).plane_affine({x.raw(), dtype, size, field, 5, scale_shift.data<float>(),
                                   gain.data<float>(), bias.data<float>(), y.raw()});
      const auto in = x.to_floats(), out = y.to_floats();
      for (int64_t t = 0; t < 3; ++t)
        for (int64_t i = 0; i < 4; ++i)
          for (int64_t j = 0; j < 6; ++j)
            for (int64_t c = 0; c < 5; ++c) {
              const int64_t from = t == 0 ? 0 : 1;
              const auto there = size_t(((from * 2 + i / 2) * 3 + j / 2) * 5 + c);
              const auto here = size_t(((t * 4 + i) * 6 + j) * 5 + c);
              const float* ss = scale_shift.data<float>();
              const double v = (double(in[here]) * ss[c] + ss[5 + c]) * gain.data<float>()[there] +
                               bias.data<float>()[there];
              const double want = v / (1 + std::exp(-v));
              EXPECT_NEAR(out[here], want,
                          (dtype == DType::f32 ? 1e-5 : 1e-2) * (1 + std::abs(want)));
            }
    }
}

// The reference uses expf of glibc; elsewhere the last bit of an f32 may differ.
#ifdef __GLIBC__
TEST(PlaneAffine, EveryInstructionSetHasTheBitsOfTheReference) {
  const PlaneSize size{1, 8, 64}, field{1, 2, 8};
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t channels : {1, 16, 70, 130}) {
      const Tensor x = random_tensor({size.height * size.width, channels}, dtype, 1);
      const Tensor gain = random_tensor({2, 8, channels}, DType::f32, 2);
      const Tensor bias = random_tensor({2, 8, channels}, DType::f32, 3);
      const Tensor ones = Tensor::from(std::vector<float>(size_t(2 * channels), 1), {2, channels});
      // Arguments of the exponential of all sizes, and NaN.
      for (int64_t i = 0; i < gain.elements(); ++i)
        gain.data<float>()[i] *= std::pow(10.0f, float(i % 11) - 4);
      bias.data<float>()[0] = NAN;
      bias.data<float>()[bias.elements() - 1] = INFINITY;
      const auto made = [&](Isa isa) {
        const Tensor y = Tensor::zeros(x.shape(), dtype);
        cpu_table(isa).plane_affine({x.raw(), dtype, size, field, channels, ones.data<float>(),
                                     gain.data<float>(), bias.data<float>(), y.raw()});
        return y;
      };
      const Tensor want = made(Isa::reference);
      for (Isa isa : available_isas()) {
        const std::vector<float> a = made(isa).to_floats(), b = want.to_floats();
        for (size_t i = 0; i < a.size(); ++i)
          ASSERT_TRUE(std::memcmp(&a[i], &b[i], 4) == 0 || (std::isnan(a[i]) && std::isnan(b[i])))
              << name_of(isa) << " " << tensor::name_of(dtype) << " " << i << ": " << a[i] << ", "
              << b[i];
      }
    }
}

// All sizes of arguments, from infinite to subnormal results: a short exponential serves if no bit
// of bf16 depends on the difference.
TEST(PlaneAffine, Bf16IsThatOfTheReferenceForAnyArgument) {
  const int64_t channels = 512, pixels = 512;
  const Tensor ones = Tensor::from(std::vector<float>(size_t(2 * channels), 0), {2, channels});
  const Tensor x = random_tensor({pixels, channels}, DType::bf16, 1);
  const Tensor gain = Tensor::zeros({pixels, channels}, DType::f32);
  const Tensor bias = Tensor::empty({pixels, channels}, DType::f32);
  for (int64_t i = 0; i < bias.elements(); ++i) {
    const auto bits = static_cast<uint32_t>(i * 16381);
    const uint32_t near =
        0x3a800000 + bits % 0x08800000 + (i % 4 == 0 ? 0x80000000 : 0);  // 2^-10 to 2^7
    std::memcpy(bias.data<float>() + i, i % 2 ? &bits : &near, 4);
  }
  const auto made = [&](Isa isa) {
    const Tensor y = Tensor::zeros(x.shape(), DType::bf16);
    cpu_table(isa).plane_affine({x.raw(),
                                 DType::bf16,
                                 {1, 1, pixels},
                                 {1, 1, pixels},
                                 channels,
                                 ones.data<float>(),
                                 gain.data<float>(),
                                 bias.data<float>(),
                                 y.raw()});
    return y;
  };
  const std::vector<float> want = made(Isa::reference).to_floats();
  for (Isa isa : available_isas()) {
    const std::vector<float> got = made(isa).to_floats();
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_TRUE(std::memcmp(&got[i], &want[i], 4) == 0 ||
                  (std::isnan(got[i]) && std::isnan(want[i])))
          << name_of(isa) << ": " << bias.data<float>()[i] << " gives " << got[i] << ", not "
          << want[i];
  }
}
#endif

TEST(PlaneAffine, TheFirstOfAnOddNumberOfFramesReadsTheFirst) {
  EXPECT_EQ(nearest_frame(0, 5, 3), 0);
  EXPECT_EQ(nearest_frame(1, 5, 3), 1);
  EXPECT_EQ(nearest_frame(4, 5, 3), 2);
  EXPECT_EQ(nearest_frame(3, 4, 2), 1);
}

}  // namespace
}  // namespace tessera::kernels

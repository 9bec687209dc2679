#include "ops/plane_affine.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tessera/error.h"

namespace tessera::ops {
namespace {

Tensor counted(const tensor::Shape& shape, float step) {
  Tensor x = Tensor::empty(shape, DType::f32);
  for (int64_t i = 0; i < x.elements(); ++i)
    x.data<float>()[i] = step * static_cast<float>(i % 7 - 3);
  return x;
}

TEST(PlaneAffine, TheFirstOfAnOddNumberOfFramesStandsAlone) {
  std::vector<int64_t> odd, even;
  for (int64_t t = 0; t < 5; ++t) odd.push_back(nearest_frame(t, 5, 3));
  for (int64_t t = 0; t < 4; ++t) even.push_back(nearest_frame(t, 4, 2));
  EXPECT_EQ(odd, (std::vector<int64_t>{0, 1, 1, 2, 2}));
  EXPECT_EQ(even, (std::vector<int64_t>{0, 0, 1, 1}));
  EXPECT_EQ(nearest_frame(0, 1, 1), 0);
}

TEST(PlaneAffine, ReadsTheNearestPlace) {
  const Tensor x = counted({2, 4, 4, 2}, 0.5f), y = counted({1, 2, 2, 2}, 0.3f);
  const Tensor b = counted({1, 2, 2, 2}, -0.2f), norm = counted({1, 2, 2}, 0.4f);
  const Tensor out = plane_affine(x, norm, y, b);
  const int64_t t = 1, line = 3, column = 1, c = 1, here = ((t * 4 + line) * 4 + column) * 2 + c;
  const int64_t there = (1 * 2 + 0) * 2 + c;
  const float* n = norm.data<float>();
  const float v =
      (x.data<float>()[here] * n[c] + n[2 + c]) * y.data<float>()[there] + b.data<float>()[there];
  EXPECT_FLOAT_EQ(out.data<float>()[here], v / (1 + std::exp(-v)));
}

TEST(PlaneAffine, RunsOnMetaAndNamesWhatDoesNotFit) {
  const Tensor x = Tensor::empty({2, 4, 4, 2}, DType::bf16, tensor::Device::meta);
  const Tensor y = Tensor::empty({1, 2, 2, 2}, DType::f32, tensor::Device::meta);
  const Tensor norm = Tensor::empty({1, 2, 2}, DType::f32, tensor::Device::meta);
  EXPECT_EQ(plane_affine(x, norm, y, y).shape(), x.shape());
  EXPECT_THROW(plane_affine(x, norm, y, norm), Error);
}

}  // namespace
}  // namespace tessera::ops

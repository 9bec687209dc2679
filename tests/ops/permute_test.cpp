#include "ops/permute.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tessera/error.h"

namespace tessera::ops {
namespace {

TEST(Permute, TurnsAxesIntoAnyOrder) {
  std::vector<float> values(24);
  std::iota(values.begin(), values.end(), 0.0f);
  const Tensor x = Tensor::from(std::span<const float>(values), {4, 6});
  const int64_t sizes[] = {2, 2, 3, 2};
  const int order[] = {2, 0, 3, 1};
  const auto y = permute(x, sizes, order, {6, 4}).to_floats();
  size_t at = 0;
  for (size_t c = 0; c < 3; ++c)
    for (size_t a = 0; a < 2; ++a)
      for (size_t d = 0; d < 2; ++d)
        for (size_t b = 0; b < 2; ++b, ++at) EXPECT_EQ(y[at], values[a * 12 + b * 6 + c * 2 + d]);
}

TEST(Permute, RunsOnMetaAndNamesWhatDoesNotFit) {
  const Tensor x = Tensor::empty({4, 6}, tensor::DType::bf16, tensor::Device::meta);
  const int64_t sizes[] = {4, 6};
  const int turned[] = {1, 0}, twice[] = {1, 1};
  EXPECT_EQ(permute(x, sizes, turned, {6, 4}).shape(), (tensor::Shape{6, 4}));
  EXPECT_THROW(permute(x, sizes, turned, {5, 4}), Error);
  EXPECT_THROW(permute(x, sizes, twice, {6, 4}), Error);
  EXPECT_THROW(permute(Tensor::zeros({4, 6}, tensor::DType::f32).slice(1, 0, 5),
                       std::vector<int64_t>{4, 5}, turned, {5, 4}),
               Error);
  EXPECT_EQ(
      permute(Tensor::zeros({0, 6}, tensor::DType::f32), std::vector<int64_t>{0, 6}, turned, {6, 0})
          .elements(),
      0);
}

}  // namespace
}  // namespace tessera::ops

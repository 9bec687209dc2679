#include "media/resize.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tessera/error.h"

namespace tessera::media {
namespace {

using tensor::Tensor;

// The numbers of PyTorch: interpolate(mode="bilinear", align_corners=False), then the middle.
Tensor image() {
  std::vector<float> values;
  for (int i = 0; i < 12; ++i) values.push_back(std::pow(static_cast<float>(i), 1.5f));
  return Tensor::from(std::span<const float>(values), {1, 3, 4});
}

void expect_near(const Tensor& got, const std::vector<float>& want) {
  const auto values = got.to_floats();
  ASSERT_EQ(values.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(values[i], want[i], 1e-4) << i;
}

TEST(Resize, CoversAndCutsTheMiddle) {
  expect_near(resize_and_crop(image(), 2, 5), {0, 0.700000f, 1.914214f, 3.538744f, 5.196152f, 8,
                                               10.226238f, 12.938639f, 15.843935f, 18.520260f});
  expect_near(resize_and_crop(image(), 5, 2),
              {1.304738f, 2.523689f, 5.489419f, 7.158549f, 11.766440f, 14.110839f, 21.368855f,
               24.155725f, 27.770462f, 30.852314f});
}

TEST(Resize, LeavesTheSameSizeAlone) {
  EXPECT_EQ(resize_and_crop(image(), 3, 4).to_floats(), image().to_floats());
}

TEST(Resize, GivesEverySizeThatIsAskedFor) {
  for (int64_t height : {1, 2, 7, 49, 50})
    for (int64_t width : {1, 3, 6, 29, 49})
      EXPECT_EQ(resize_and_crop(image(), height, width).shape(), tensor::Shape({1, height, width}));
}

TEST(Resize, RefusesWhatIsNoImage) {
  EXPECT_THROW(resize_and_crop(image(), 0, 4), Error);
  EXPECT_THROW(resize_and_crop(image().reshape({3, 4}), 2, 4), Error);
}

}  // namespace
}  // namespace tessera::media

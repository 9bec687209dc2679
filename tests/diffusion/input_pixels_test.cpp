#include "diffusion/input_pixels.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::diffusion {

TEST(InputPixels, AreLimitedInArea) {
  const media::Pixels image{300, 100, 1, std::vector<uint8_t>(30000, 7)};
  EXPECT_EQ(limited(image, 0).width, 300);
  EXPECT_EQ(limited(image, 30000).width, 300);
  const media::Pixels less = limited(image, 7500);  // half of each side
  EXPECT_EQ(less.width, 150);
  EXPECT_EQ(less.height, 50);
  EXPECT_EQ(less.bytes, std::vector<uint8_t>(7500, 7));
  EXPECT_EQ(limited({5000, 1, 1, std::vector<uint8_t>(5000)}, 50).height, 1) << "never 0";
}

TEST(InputPixels, BecomeNumbersChannelByChannel) {
  const tensor::Tensor x = numbers_of({2, 1, 3, {0, 51, 102, 255, 0, 204}});
  EXPECT_EQ(x.shape(), (tensor::Shape{1, 3, 1, 2}));
  const std::vector<float> expected{-1, 1, -0.6f, -1, -0.2f, 0.6f};
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(x.to_floats()[i], expected[i], 1e-6) << i;
}

TEST(InputPixels, OfARequestAreCheckedAgainstTheirSize) {
  InputImage image;
  image.pixels.width = image.pixels.height = 2;
  image.pixels.rgb.resize(12, 9);
  EXPECT_EQ(read_input(image, "`image`").image.rgb, image.pixels.rgb);
  image.pixels.rgb.pop_back();
  EXPECT_THROW(read_input(image, "`image`"), Error);
  image.pixels.width = int64_t{1} << 62;
  EXPECT_THROW(read_input(image, "`image`"), Error);
}

}  // namespace tessera::diffusion

#include "diffusion/overlay.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::diffusion {
namespace {

using media::Pixels;

Pixels black(int width, int height, int channels) {
  return {width, height, channels, std::vector<uint8_t>(size_t(width * height * channels))};
}

Pixels mask_of(int width, int height, int left, int top, int right, int bottom) {
  Pixels mask = black(width, height, 1);
  for (int y = top; y < bottom; ++y)
    for (int x = left; x < right; ++x) mask.bytes[size_t(y * width + x)] = 255;
  return mask;
}

std::vector<int> region(const Pixels& mask, int width, int height, int pad) {
  const Overlay r = masked_region(black(mask.width, mask.height, 3), mask, width, height, pad);
  return {r.left, r.top, r.left + r.width, r.top + r.height};
}

// Boxes of get_crop_region of diffusers 0.42.1.
TEST(Overlay, RegionsAreThoseOfDiffusers) {
  const Pixels mask = mask_of(95, 50, 60, 20, 90, 40);
  EXPECT_EQ(region(mask, 64, 64, 0), (std::vector<int>{60, 15, 90, 45}));
  EXPECT_EQ(region(mask, 64, 64, 8), (std::vector<int>{52, 7, 95, 50}));
  EXPECT_EQ(region(mask, 96, 32, 2), (std::vector<int>{23, 18, 95, 42}));
  EXPECT_EQ(region(mask, 32, 96, 0), (std::vector<int>{60, 0, 90, 50}));
}

TEST(Overlay, TheImageLiesOverWhatIsMadeWhereTheMaskIsBlack) {
  Pixels image = black(4, 2, 3), mask = mask_of(4, 2, 2, 0, 4, 2);
  std::fill(image.bytes.begin(), image.bytes.end(), uint8_t{200});
  mask.bytes[2] = 128;
  Overlay overlay{image, mask, 2, 0, 2, 2};
  Image made;
  made.width = made.height = 2;
  made.rgb.assign(12, 100);
  const Image whole = overlaid(made, overlay);
  EXPECT_EQ(whole.width, 4);
  EXPECT_EQ(whole.height, 2);
  EXPECT_EQ(whole.rgb[0], 200);
  EXPECT_EQ(whole.rgb[3 * 3], 100);
  EXPECT_EQ(whole.rgb[2 * 3], 150);  // half of each
  EXPECT_EQ(region_of(image, overlay).bytes.size(), 12u);
}

TEST(Overlay, BlackMasksAndOtherSizesAreRefused) {
  EXPECT_THROW(region(black(8, 8, 1), 64, 64, 0), Error);
  EXPECT_THROW(masked_region(black(9, 8, 3), mask_of(8, 8, 0, 0, 1, 1), 64, 64, 0), Error);
}

}  // namespace
}  // namespace tessera::diffusion

#include "media/lanczos.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::media {
namespace {

Pixels noise(int width, int height, int channels) {
  Pixels made{width, height, channels, {}};
  uint32_t state = 1;
  for (int i = 0; i < width * height * channels; ++i) {
    state = state * 1664525 + 1013904223;
    made.bytes.push_back(static_cast<uint8_t>(state >> 24));
  }
  return made;
}

uint64_t digest(const Pixels& of) {
  uint64_t hash = 14695981039346656037ull;
  for (const uint8_t byte : of.bytes) hash = (hash ^ byte) * 1099511628211ull;
  return hash;
}

}  // namespace

TEST(Lanczos, GivesPillowsBytes) {  // bytes of Pillow 13, including sizes with lines scaled first
  struct Case {
    int width, height, to_width, to_height;
    uint64_t digest;
  };
  for (const Case& c : std::vector<Case>{{31, 23, 16, 16, 0x75e382cbb0377800ull},
                                         {31, 23, 48, 40, 0xe7be6d318d73076ull},
                                         {31, 23, 40, 9, 0xa623f7a478b9983dull},
                                         {20, 50, 19, 30, 0xf56c07b37c714bddull},
                                         {24, 24, 20, 12, 0x677ba8f1c246febeull},
                                         {24, 24, 20, 16, 0xbddfc26f48706c2cull},
                                         {7, 3, 64, 1, 0xa5564cc016b67796ull}})
    EXPECT_EQ(digest(resize_lanczos(noise(c.width, c.height, 3), c.to_width, c.to_height)),
              c.digest)
        << c.width << " x " << c.height << " to " << c.to_width << " x " << c.to_height;
}

TEST(Lanczos, BlursAsPillow) {
  for (const auto& [radius, expected] :
       std::vector<std::pair<double, uint64_t>>{{0.5, 0x64924a282c6f83edull},
                                                {1, 0x61a0e722e50666a8ull},
                                                {2.5, 0xbf4014f1bc30da0cull},
                                                {4, 0x53ca0b401b81d146ull},
                                                {20, 0x4177f0b654280042ull}})
    EXPECT_EQ(digest(blurred(noise(31, 23, 1), radius)), expected) << radius;
}

TEST(Lanczos, LeavesAnImageOfThatSizeAsItIs) {
  const Pixels from = noise(9, 5, 3);
  EXPECT_EQ(resize_lanczos(from, 9, 5).bytes, from.bytes);
}

TEST(Lanczos, FillsBandsWithTheBorderAndCutsTheMiddle) {
  Pixels from{2, 1, 1, {10, 200}};
  const Pixels filled = fit_pixels(from, 2, 3, Fitting::fill);
  EXPECT_EQ(filled.bytes, (std::vector<uint8_t>{10, 200, 10, 200, 10, 200}));
  const Pixels wide{4, 2, 1, {1, 2, 3, 4, 5, 6, 7, 8}};
  EXPECT_EQ(fit_pixels(wide, 2, 2, Fitting::crop).bytes, (std::vector<uint8_t>{2, 3, 6, 7}));
}

TEST(Lanczos, CutsTheMiddleAsPillow) {
  const Pixels from{5, 2, 1, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}};
  EXPECT_EQ(cut_middle(from, 2, 1).bytes, (std::vector<uint8_t>{2, 3}));
  EXPECT_EQ(cut_middle(from, 3, 2).bytes, (std::vector<uint8_t>{2, 3, 4, 7, 8, 9}));
}

TEST(Lanczos, RefusesSizesThatNoImageHas) {
  EXPECT_THROW(resize_lanczos(noise(2, 2, 3), 0, 4), Error);
  EXPECT_THROW(resize_lanczos(noise(2, 2, 3), 1 << 20, 1 << 20), Error);
}

TEST(Lanczos, GreyIsPillowsAndRoundsToNearest) {
  EXPECT_EQ(grey_of({2, 1, {255, 255, 255, 10, 20, 30}}).bytes, (std::vector<uint8_t>{255, 18}));
}

}  // namespace tessera::media

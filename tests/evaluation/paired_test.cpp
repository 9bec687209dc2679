#include "evaluation/paired.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::evaluation {
namespace {

TEST(Paired, IntervalsShrinkWithTheSamples) {
  const Interval one = interval({3});
  EXPECT_EQ(one.mean, 3);
  EXPECT_EQ(one.half, 0);
  const Interval four = interval({1, 2, 3, 4});
  EXPECT_DOUBLE_EQ(four.mean, 2.5);
  EXPECT_NEAR(four.half, 1.96 * 1.2909944 / 2, 1e-6);
}

TEST(Paired, ErrorsAreRelativeToTheSecond) {
  const std::vector<float> a{1, 1}, b{1, 0}, zero{0, 0};
  EXPECT_DOUBLE_EQ(relative_error(a, b), 1);
  EXPECT_DOUBLE_EQ(relative_error(b, b), 0);
  EXPECT_DOUBLE_EQ(relative_error(b, zero), 1);
  EXPECT_THROW(relative_error(a, std::vector<float>{1}), Error);
}

TEST(Paired, PsnrOfBytes) {
  const std::vector<uint8_t> a{0, 0, 0, 0}, b{255, 255, 255, 255}, c{1, 1, 1, 1};
  EXPECT_DOUBLE_EQ(psnr(a, a), 100);
  EXPECT_DOUBLE_EQ(psnr(a, b), 0);
  EXPECT_NEAR(psnr(a, c), 48.13, 0.01);
}

}  // namespace
}  // namespace tessera::evaluation

#include "tensor/shape.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::tensor {
namespace {

TEST(Shape, CountsAndPrints) {
  const Shape s{2, 0, 3};
  EXPECT_EQ(s.rank(), 3);
  EXPECT_EQ(s[-1], 3);
  EXPECT_EQ(s.elements(), 0);
  EXPECT_EQ(s.str(), "[2, 0, 3]");
  EXPECT_EQ(Shape{}.elements(), 1);
  EXPECT_EQ(s.with(1, 5), (Shape{2, 5, 3}));
}

TEST(Shape, RefusesWhatCannotBe) {
  EXPECT_THROW((Shape{-1}), Error);
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1, 1}), Error);
  EXPECT_THROW((Shape{int64_t{1} << 40, int64_t{1} << 40}), Error);
  EXPECT_THROW((Shape{0, int64_t{1} << 40, int64_t{1} << 40}), Error);
  EXPECT_THROW((Shape{2, 3})[2], Error);
  EXPECT_THROW((Shape{2, 3})[-3], Error);
}

}  // namespace
}  // namespace tessera::tensor

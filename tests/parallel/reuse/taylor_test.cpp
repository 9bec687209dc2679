#include "parallel/reuse/taylor.h"

#include <gtest/gtest.h>

namespace tessera::parallel {
namespace {

using tensor::Tensor;

Tensor number(float x) { return Tensor::from(std::span<const float>(&x, 1), {1, 1}); }
float value(const Tensor& x) { return x.to_floats().at(0); }

TEST(Taylor, HoldsAValueUntilThereAreDifferences) {
  Taylor taylor(2);
  EXPECT_FALSE(taylor.defined());
  taylor.update(number(3), 0);
  EXPECT_EQ(value(taylor.at(4)), 3);
}

TEST(Taylor, GoesOnAlongALineOverUnevenSteps) {
  Taylor taylor(1);
  taylor.update(number(1), 0);
  taylor.update(number(7), 3);
  EXPECT_FLOAT_EQ(value(taylor.at(5)), 11);
}

// F_0 = 9, F_1 = (9 - 4) / 1 = 5, F_2 = (5 - 3) / 1 = 2.
TEST(Taylor, UsesHigherDifferences) {
  Taylor taylor(2);
  for (int step = 1; step <= 3; ++step) taylor.update(number(float(step * step)), step);
  EXPECT_FLOAT_EQ(value(taylor.at(5)), 9 + 5 * 2 + 2 * 4 / 2);
}

TEST(Taylor, FormsNoDifferencesBeforeItsFirstStep) {
  Taylor taylor(1, 2);
  taylor.update(number(1), 0);
  taylor.update(number(2), 1);
  EXPECT_EQ(value(taylor.at(2)), 2);
  taylor.update(number(4), 2);
  EXPECT_FLOAT_EQ(value(taylor.at(3)), 6);
}

}  // namespace
}  // namespace tessera::parallel

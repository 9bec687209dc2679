#include "evaluation/shares.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::evaluation {
namespace {

TEST(Shares, WilsonsIntervalStaysInsideZeroAndOne) {
  const Share most = wilson(597, 600);
  EXPECT_DOUBLE_EQ(most.value, 0.995);
  EXPECT_NEAR(most.low, 0.9854038, 1e-7);
  EXPECT_NEAR(most.high, 0.9982981, 1e-7);
  const Share all = wilson(10, 10);
  EXPECT_NEAR(all.low, 0.7224672, 1e-7);
  EXPECT_NEAR(all.high, 1, 1e-12);
  EXPECT_DOUBLE_EQ(wilson(0, 10).low, 0);
  EXPECT_NEAR(wilson(0, 10).high, 0.2775328, 1e-7);
  EXPECT_EQ(wilson(0, 0).high, 1);
}

std::vector<uint8_t> flags(int right, int wrong) {
  std::vector<uint8_t> all(size_t(right), 1);
  all.insert(all.end(), size_t(wrong), 0);
  return all;
}

TEST(Shares, McNemarCountsOnlyAnswersThatDiffer) {
  const PairedChange none = mcnemar(flags(5, 3), flags(5, 3));
  EXPECT_EQ(none.gained + none.lost, 0);
  EXPECT_DOUBLE_EQ(none.p, 1);
  const PairedChange six = mcnemar(flags(100, 0), flags(94, 6));
  EXPECT_EQ(six.lost, 6);
  EXPECT_NEAR(six.p, 0.03125, 1e-12);
  const PairedChange both = mcnemar({1, 1, 1, 1, 0}, {0, 0, 0, 1, 1});  // 3 lost, 1 gained
  EXPECT_EQ(both.gained, 1);
  EXPECT_EQ(both.lost, 3);
  EXPECT_NEAR(both.p, 0.625, 1e-12);
  EXPECT_NEAR(mcnemar(flags(600, 0), flags(300, 300)).p, 0, 1e-80);
  EXPECT_THROW(mcnemar({1}, {}), Error);
}

}  // namespace
}  // namespace tessera::evaluation

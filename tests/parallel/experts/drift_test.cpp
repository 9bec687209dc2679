#include "parallel/experts/drift.h"

#include <gtest/gtest.h>

namespace tessera::parallel {
namespace {

using tensor::DType;
using tensor::Tensor;

TEST(Drift, MovesAreRelativeToTheTokenBefore) {
  const std::vector<float> before{3, 4, 0, 0, 1, 0}, now{3, 5, 1, 1, 1, 0};
  const auto moves = relative_moves(Tensor::from(std::span<const float>(before), {3, 2}),
                                    Tensor::from(std::span<const float>(now), {3, 2}));
  EXPECT_EQ(moves, (std::vector<float>{0.2f, 0, 0})) << "a row of zeros has no relative move";
}

TEST(Drift, LengthsOfRowsOfAnyTypeAndStride) {
  const std::vector<float> values{9, 3, 4, 9, 0, 0};
  const Tensor x = Tensor::from(std::span<const float>(values), {2, 3});
  EXPECT_EQ(row_lengths(x.slice(1, 1, 3)), (std::vector<float>{5, 0}));
  const Tensor none = Tensor::empty({0, 3}, DType::bf16);
  EXPECT_TRUE(row_lengths(none).empty());
}

TEST(Drift, LargestErrorsComeFirstAndTiesGoToTheFirstPair) {
  std::vector<Candidate> rows{{0, 0, 1}, {1, 1, 3}, {2, 2, 2}, {3, 3, 2}, {4, 4, 0}};
  largest_first(rows, 2);
  std::vector<int64_t> first{rows[0].assignment, rows[1].assignment};
  std::sort(first.begin(), first.end());
  EXPECT_EQ(first, (std::vector<int64_t>{1, 2}));
  largest_first(rows, 99);
  EXPECT_EQ(rows.size(), 5u);
}

}  // namespace
}  // namespace tessera::parallel

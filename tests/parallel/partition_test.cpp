#include "parallel/partition.h"

#include <gtest/gtest.h>

namespace tessera::parallel {
namespace {

using tensor::Tensor;

Tensor counted(int64_t rows) {
  std::vector<float> values(static_cast<size_t>(rows * 2));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return Tensor::from(std::span<const float>(values), {rows, 2});
}

TEST(Partition, CuttingAndJoiningGiveTheWhole) {
  for (const char* text : {"", "data=3", "distrifusion=4", "data=2,distrifusion=3", "data=8"}) {
    const Plan plan = parse_plan(text);
    const Tensor whole = counted(5 * 7);
    std::vector<Tensor> parts;
    for (int r = 0; r < plan.world(); ++r) parts.push_back(cut(whole, share_of(plan, r, 5, 7, 2)));
    EXPECT_EQ(join(parts, plan, 5, 7).to_floats(), whole.to_floats()) << text;
  }
}

TEST(Partition, RowsAreConditionalFirst) {
  const Share share = share_of(parse_plan("data=2"), 1, 5, 7, 2);
  EXPECT_EQ(share.pictures, (nn::Range{2, 5}));
  EXPECT_EQ(share.rows(), 6);
  EXPECT_EQ(share.global_row(0), 2);
  EXPECT_EQ(share.global_row(3), 7);
  EXPECT_EQ(share.view(0).body.size(), 6u);
}

TEST(Partition, RowsOfAViewKeepTheirNumbers) {
  const nn::TokenView whole = share_of(parse_plan(""), 0, 3, 7, 1).view(2);
  const nn::TokenView part = rows_of(whole, 1, 3);
  EXPECT_EQ(part.rows, (std::vector<int>{1, 2}));
  EXPECT_EQ(part.body, (nn::Segments{{1, {0, 7}}, {2, {0, 7}}}));
  EXPECT_EQ(part.prefix, (nn::Segments{{1, {0, 2}}, {2, {0, 2}}}));
  EXPECT_TRUE(rows_of(whole, 3, 3).body.empty());
}

TEST(Partition, ExpertGroupsAreNeighbours) {
  const Plan plan = parse_plan("data=4,expert=2");
  EXPECT_EQ(expert_group(plan, 1), (std::vector<int>{0, 1}));
  EXPECT_EQ(expert_group(plan, 2), (std::vector<int>{2, 3}));
  EXPECT_EQ(token_group(parse_plan("data=2,distrifusion=3"), 4), (std::vector<int>{3, 4, 5}));
}

}  // namespace
}  // namespace tessera::parallel

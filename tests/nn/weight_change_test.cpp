#include "nn/weight_change.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tessera::nn {
namespace {

using tensor::Tensor;

Tensor matrix(int64_t rows, const std::vector<float>& values) {
  return Tensor::from(std::span<const float>(values),
                      {rows, static_cast<int64_t>(values.size()) / rows});
}

}  // namespace

TEST(WeightChange, PairsAreJoinedAlongTheirRanks) {
  WeightChange a, b;
  a.down = matrix(1, {1, 2});
  a.up = matrix(3, {1, 2, 3});
  b.down = matrix(2, {3, 4, 5, 6});
  b.up = matrix(3, {1, 0, 0, 1, 1, 1});
  EXPECT_TRUE(are_pairs({a, b}));
  const WeightChange both = joined_pairs({a, b});
  EXPECT_EQ(both.down.to_floats(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(both.up.to_floats(), (std::vector<float>{1, 1, 0, 2, 0, 1, 3, 1, 1}));
  const Tensor w = matrix(3, {0, 0, 0, 0, 0, 0});
  EXPECT_EQ(changed(w, {a, b}).to_floats(), changed(w, {both}).to_floats());
}

TEST(WeightChange, AMagnitudeSetsTheNormsOfRows) {
  WeightChange change;
  change.down = matrix(1, {0, 0});
  change.up = matrix(2, {0, 0});
  change.magnitude = Tensor::from(std::span<const float>(std::vector<float>{10, 1}), {2});
  EXPECT_FALSE(are_pairs({change}));
  const Tensor w = matrix(2, {3, 4, 0, 2});
  EXPECT_EQ(changed(w, {change}).to_floats(), (std::vector<float>{6, 8, 0, 1}));
  change.blend = 0.5f;
  EXPECT_EQ(changed(w, {change}).to_floats(), (std::vector<float>{4.5f, 6, 0, 1.5f}));
}

TEST(WeightChange, AMagnitudeOfColumnsSetsTheirs) {
  WeightChange change;
  change.dense = [] { return matrix(2, {0, 0, 0, 0}); };
  change.by_columns = true;
  change.magnitude = Tensor::from(std::span<const float>(std::vector<float>{10, 0}), {2});
  const Tensor w = matrix(2, {3, 1, 4, 1});
  EXPECT_EQ(changed(w, {change}).to_floats(), (std::vector<float>{6, 0, 8, 0}));
}

}  // namespace tessera::nn

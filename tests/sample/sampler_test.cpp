#include "sample/sampler.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tessera/error.h"

namespace tessera::sample {
namespace {

Tensor row(std::vector<float> values) {
  const int64_t n = static_cast<int64_t>(values.size());
  return Tensor::from(std::span<const float>(values), {1, n});
}

// Two samples of two tokens; the third column is not guided.
TEST(RescaleGuided, GivesEachSampleTheSpreadOfItsConditional) {
  const std::vector<float> cond{1, 2, 9, 3, 4, 9, 0, 10, 7, 20, 30, 7};
  const std::vector<float> guided{2, 4, 9, 6, 8, 9, 5, 5, 7, 5, 9, 7};
  const auto of = [](const std::vector<float>& v) {
    return Tensor::from(std::span<const float>(v), {4, 3});
  };
  // The first guided sample has twice the deviation of its conditional sample.
  const auto out = rescale_guided(of(guided), of(cond), 1, 2, 2).to_floats();
  for (size_t i : {0, 1, 3, 4}) EXPECT_NEAR(out[i], cond[i], 1e-5);
  const auto half = rescale_guided(of(guided), of(cond), 0.5f, 2, 2).to_floats();
  for (size_t i : {0, 1, 3, 4}) EXPECT_NEAR(half[i], 0.75f * guided[i], 1e-5);
  // The second: standard deviations are sqrt(125) and sqrt(3).
  for (size_t i : {6, 7, 9, 10}) EXPECT_NEAR(out[i], guided[i] * std::sqrt(125.0 / 3), 1e-3);
  for (size_t i : {2, 5, 8, 11}) EXPECT_EQ(out[i], guided[i]);
}

TEST(RescaleGuided, LeavesAFlatPredictionAlone) {
  EXPECT_EQ(rescale_guided(row({3, 3}), row({1, 5}), 1, 1, 2).to_floats(),
            (std::vector<float>{3, 3}));
  EXPECT_THROW(rescale_guided(row({3, 3}), row({1}), 1, 1, 1), Error);
}

TEST(LimitGuided, ShortensASampleThatIsTooLong) {
  const auto of = [](const std::vector<float>& v) {
    return Tensor::from(std::span<const float>(v), {2, 2});
  };
  // Two samples of a token: norms 10 and 5 against 5 and 5.
  const auto out = limit_guided(of({6, 8, 3, 4}), of({3, 4, 0, 5}), 1, 1).to_floats();
  EXPECT_EQ(out, (std::vector<float>{3, 4, 3, 4}));
  EXPECT_EQ(limit_guided(of({6, 8, 3, 4}), of({3, 4, 0, 5}), 2, 1).to_floats(),
            (std::vector<float>{6, 8, 3, 4}));
  EXPECT_THROW(limit_guided(of({6, 8, 3, 4}), of({3, 4, 0, 5}), 1, 3), Error);
}

}  // namespace
}  // namespace tessera::sample

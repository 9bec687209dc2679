#include "sample/logprobs.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tessera::sample {
namespace {

TEST(LogProbabilities, AreASoftmaxWithoutTheMask) {
  const std::vector<float> logits{0, std::log(2.0f), 50, std::log(5.0f)};  // 1 : 2 : mask : 5
  const auto all = log_probabilities(logits, 2, 1, 2);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].token, 1);
  EXPECT_NEAR(all[0].value, std::log(2.0 / 8), 1e-6);
  EXPECT_EQ(all[1].token, 3);
  EXPECT_NEAR(all[1].value, std::log(5.0 / 8), 1e-6);
  EXPECT_EQ(all[2].token, 1);
  EXPECT_EQ(all[2].value, all[0].value);
}

TEST(LogProbabilities, AreAsManyAsWereAskedForAndThere) {
  const std::vector<float> logits{3, 3, 1000, 3};
  EXPECT_EQ(log_probabilities(logits, 2, 0, 0).size(), 1u);
  const auto all = log_probabilities(logits, 2, 3, 100);
  ASSERT_EQ(all.size(), 4u);  // three and the requested token
  for (int32_t i = 0; const int32_t id : {0, 1, 3}) EXPECT_EQ(all[size_t(++i)].token, id);
  for (const auto& one : all) EXPECT_NEAR(one.value, -std::log(3.0), 1e-12);
}

}  // namespace
}  // namespace tessera::sample

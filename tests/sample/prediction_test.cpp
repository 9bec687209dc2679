#include "sample/prediction.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tessera/error.h"

namespace tessera::sample {
namespace {

TEST(Prediction, SplitsALatentIntoCleanAndNoise) {
  const double alpha = 0.6, sigma = 0.8, clean = 2, noise = -1, x = alpha * clean + sigma * noise;
  const std::pair<PredictionType, double> outs[] = {
      {PredictionType::epsilon, noise},
      {PredictionType::velocity, alpha * noise - sigma * clean},
      {PredictionType::sample, clean}};
  for (const auto& [kind, out] : outs) {
    const FromPair c = clean_of(kind, alpha, sigma), n = noise_of(kind, alpha, sigma);
    EXPECT_NEAR(c.x * x + c.out * out, clean, 1e-12);
    EXPECT_NEAR(n.x * x + n.out * out, noise, 1e-12);
  }
}

TEST(Prediction, OfAFlowIsTheDifference) {
  const double sigma = 0.3, clean = 2, noise = -1, x = (1 - sigma) * clean + sigma * noise;
  const FromPair c = clean_of(PredictionType::flow, 1 - sigma, sigma);
  EXPECT_NEAR(c.x * x + c.out * (noise - clean), clean, 1e-12);
}

TEST(Prediction, ReadsTheClipOrTheThreshold) {
  const base::Json clip = base::Json::parse(R"({"clip_sample": true, "clip_sample_range": 2})");
  EXPECT_EQ(read_clip({clip, "c"}, false, 4).bound, 2);
  EXPECT_TRUE(std::isinf(read_clip({clip, "c"}, std::nullopt, 4).bound));
  const base::Json none = base::Json::object();
  EXPECT_TRUE(std::isinf(read_clip({none, "c"}, false, 4).bound));
  const base::Json threshold =
      base::Json::parse(R"({"thresholding": true, "sample_max_value": 3})");
  const Clip dynamic = read_clip({threshold, "c"}, true, 4);
  EXPECT_EQ(dynamic.quantile, 0.995);
  EXPECT_EQ(dynamic.most, 3);
  EXPECT_EQ(dynamic.tokens, 4);
  const base::Json wild =
      base::Json::parse(R"({"thresholding": true, "dynamic_thresholding_ratio": 2})");
  EXPECT_THROW(read_clip({wild, "c"}, true, 4), Error);
}

}  // namespace
}  // namespace tessera::sample

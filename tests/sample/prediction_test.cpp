#include "sample/prediction.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tessera/error.h"

namespace tessera::sample {
namespace {

TEST(Prediction, SplitsALatentIntoCleanAndNoise) {
  const double alpha = 0.6, sigma = 0.8, clean = 2, noise = -1, x = alpha * clean + sigma * noise;
  const std::pair<Prediction, double> outs[] = {
      {Prediction::epsilon, noise},
      {Prediction::velocity, alpha * noise - sigma * clean},
      {Prediction::sample, clean}};
  for (const auto& [kind, out] : outs) {
    const FromPair c = clean_of(kind, alpha, sigma), n = noise_of(kind, alpha, sigma);
    EXPECT_NEAR(c.x * x + c.out * out, clean, 1e-12);
    EXPECT_NEAR(n.x * x + n.out * out, noise, 1e-12);
  }
}

TEST(Prediction, OfAFlowIsTheDifference) {
  const double sigma = 0.3, clean = 2, noise = -1, x = (1 - sigma) * clean + sigma * noise;
  const FromPair c = clean_of(Prediction::flow, 1 - sigma, sigma);
  EXPECT_NEAR(c.x * x + c.out * (noise - clean), clean, 1e-12);
}

TEST(Prediction, ReadsTheClipAndRefusesThresholds) {
  const base::Json clip = base::Json::parse(R"({"clip_sample": true, "clip_sample_range": 2})");
  EXPECT_EQ(read_clip({clip, "c"}, false), 2);
  const base::Json none = base::Json::object();
  EXPECT_TRUE(std::isinf(read_clip({none, "c"}, false)));
  const base::Json threshold = base::Json::parse(R"({"thresholding": true})");
  EXPECT_THROW(read_clip({threshold, "c"}, false), Error);
}

}  // namespace
}  // namespace tessera::sample

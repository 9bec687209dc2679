#include <gtest/gtest.h>

#include <cmath>

#include "whole/plans/every_network.h"

// Networks with texts of different lengths and extra tokens after the image (Z-Image, FLUX.2 with
// references): every plan gives the results of a single rank.
namespace tessera {
namespace {

using models::kUnevenNetworks;

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, length = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    error += std::pow(double(a[i]) - double(b[i]), 2);
    length += std::pow(double(b[i]), 2);
  }
  return std::sqrt(error / length);
}

class ExtraTokens : public testing::TestWithParam<size_t> {
 protected:
  Subject subject(DType dtype) const { return Subject(kUnevenNetworks[GetParam()], dtype); }
};
INSTANTIATE_TEST_SUITE_P(Networks, ExtraTokens, testing::Range<size_t>(0, 2));

TEST_P(ExtraTokens, GiveTheBitsOfOneRankWhereRowsStayWhole) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Subject run = subject(dtype);
    const auto one = run({}).steps;
    EXPECT_NE(one, run({.guided = false}).steps) << run.name << " is guided";
    for (const char* plan : {"cfg=2", "data=2", "ulysses=2", "ulysses=3", "ulysses=8",
                             "cfg=2,data=2", "cfg=2,ulysses=3", "shard=2", "shard=3,ulysses=2"})
      EXPECT_EQ(run({plan}).steps, one) << run.name << ", " << plan;
  }
}

TEST_P(ExtraTokens, GiveThePredictionsOfOneRankInAnotherOrderOfSums) {
  const Subject run = subject(DType::f32);
  const auto one = run({}).steps;
  for (const char* plan :
       {"ring=2", "ring=5", "ring=2,ulysses=2", "cfg=2,ring=3", "tensor=2", "tensor=3,ulysses=2"}) {
    const auto many = run({plan}).steps;
    for (size_t s = 0; s < one.size(); ++s)
      EXPECT_LT(distance(many[s], one[s]), 1e-5) << run.name << ", " << plan;
  }
}

TEST_P(ExtraTokens, StalePatchesAreThoseOfOneRank) {
  const Subject run = subject(DType::f32);
  for (const char* cut : {"patches=2", "patches=3", "patches=3,cut=bands"}) {
    const std::string patches = cut;
    const auto one = run({patches}).steps;
    EXPECT_NE(one, run({}).steps) << run.name << ", " << cut;
    for (const char* plan : {"pipefusion=2", "pipefusion=3", "cfg=2,pipefusion=2", "ulysses=2"})
      EXPECT_EQ(run({std::string(plan) + "," + patches}).steps, one) << run.name << ", " << plan;
    for (const char* plan : {"ring=2", "ring=2,pipefusion=2"}) {
      const auto many = run({std::string(plan) + "," + patches}).steps;
      for (size_t s = 0; s < one.size(); ++s)
        EXPECT_LT(distance(many[s], one[s]), 1e-5) << run.name << ", " << plan << ", " << cut;
    }
  }
  const auto shards = run({"shards=3"}).steps;
  EXPECT_NE(shards, run({}).steps) << run.name;
  EXPECT_EQ(run({"distrifusion=3"}).steps, shards) << run.name;
}

TEST_P(ExtraTokens, StayZerosInEveryStep) {
  const Subject run = subject(DType::f32);
  for (const auto& prediction : run({}).predictions) {
    const auto each = static_cast<int64_t>(prediction.size()) / kSamples;
    const int64_t extra = run.extra() * each / run.tokens();
    EXPECT_GT(extra, 0);
    for (int s = 0; s < kSamples; ++s)
      for (int64_t i = (s + 1) * each - extra; i < (s + 1) * each; ++i)
        ASSERT_EQ(prediction[static_cast<size_t>(i)], 0) << run.name;
  }
}

}  // namespace
}  // namespace tessera

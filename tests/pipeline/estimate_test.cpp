#include "pipeline/estimate.h"

#include <gtest/gtest.h>

namespace tessera::pipeline {
namespace {

TEST(Estimate, GrowsWithImagesButNotItsWeights) {
  const auto spec = models::pipeline_of("dit_moe", {models::named_sizes()[0].second, "small"});
  const auto layout = spec.layout(0, 0);
  const Estimate one = estimate(spec, nn::DType::bf16, layout, 1, true);
  const Estimate four = estimate(spec, nn::DType::bf16, layout, 4, true);
  EXPECT_EQ(one.weights, four.weights);
  EXPECT_GT(four.activations, 2 * one.activations);
  EXPECT_NEAR(four.flops_per_step / one.flops_per_step, 4, 0.1);
  const auto experts = expert_dtype_of({.precision = Precision::int8});
  const Estimate small = estimate(spec, nn::DType::bf16, layout, 1, true, experts);
  EXPECT_LT(small.weights, one.weights * 3 / 4);
  const Estimate wide = estimate(spec, nn::DType::f32, layout, 1, true);
  EXPECT_GT(wide.weights, one.weights * 17 / 10);
}

TEST(Estimate, RefusesAbsurdSizesAtOnce) {
  const auto spec = models::pipeline_of("dit_moe", {models::named_sizes()[0].second, "small"});
  try {
    estimate(spec, nn::DType::bf16, spec.layout(1 << 17, 1 << 17), 1, true);
    FAIL() << "4 billion tokens were accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::memory);
  }
}

TEST(LatentPixels, FitTheFactor) {
  EXPECT_EQ(latent_pixels(128, 8, 1, "width"), 16);
  EXPECT_EQ(latent_pixels(128, 8, 2, "width"), 16);
  EXPECT_EQ(latent_pixels(0, 8, 2, "width"), 0);
  for (int64_t pixels : {-8, 100, 1 << 24})
    EXPECT_THROW(latent_pixels(pixels, 8, 1, "width"), Error);
}

TEST(LatentPixels, NameTheNeighbours) {
  const auto says = [](int64_t pixels, int64_t patch) -> std::string {
    try {
      latent_pixels(pixels, 8, patch, "width");
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(says(1000, 2), "--width 1000: expected a multiple of 16: 992 or 1008");
  EXPECT_EQ(says(1000, 1), "");
  EXPECT_EQ(says(7, 2), "--width 7: expected a multiple of 16: 16");
}

}  // namespace
}  // namespace tessera::pipeline

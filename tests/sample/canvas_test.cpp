#include "sample/canvas.h"

#include <gtest/gtest.h>

#include "sample/decoding_policy.h"
#include "tessera/error.h"

namespace tessera::sample {
namespace {

std::string refusal(const std::string& text) {
  DecodingPolicy policy;
  try {
    read_decode(text, policy);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    return error.what();
  }
  return "";
}

TEST(Canvas, SettingsAreReadByTheirNamesAndOthersStay) {
  DecodingPolicy policy;
  read_decode("canvas:entropy_bound=0.5,max_denoising_steps=12", policy);
  EXPECT_TRUE(policy.denoises());
  EXPECT_EQ(policy.canvas.entropy_bound, 0.5);
  EXPECT_EQ(policy.canvas.max_denoising_steps, 12);
  EXPECT_EQ(policy.canvas.t_max, 0.8);
  read_decode("canvas:t_min=0", policy);
  EXPECT_EQ(policy.canvas.entropy_bound, 0.5);
  DecodingPolicy again;
  read_decode(to_string(policy.canvas), again);
  EXPECT_EQ(to_string(again.canvas), to_string(policy.canvas));
}

TEST(Canvas, SettingsThatDoNotFitAreRefusedByName) {
  EXPECT_NE(refusal("canvas:entropy=1").find("'entropy=1' is no setting"), std::string::npos);
  EXPECT_NE(refusal("canvas:t_max=-1").find("t_max is '-1'; expected a number from 0 to 100"),
            std::string::npos);
  EXPECT_NE(refusal("canvas:max_denoising_steps=1.5").find("expected a whole number"),
            std::string::npos);
  EXPECT_NE(refusal("canvas:t_max=0.1").find("t_min no higher"), std::string::npos);
  EXPECT_EQ(refusal("canvas:t_min=0"), "");
}

TEST(Canvas, TemperatureFallsFromTheFirstPassAlmostToItsEnd) {
  const CanvasRule rule{.max_denoising_steps = 4, .t_max = 0.8, .t_min = 0.4};
  EXPECT_DOUBLE_EQ(temperature_of(rule, 0), 0.8);
  EXPECT_DOUBLE_EQ(temperature_of(rule, 2), 0.6);
  EXPECT_DOUBLE_EQ(temperature_of(rule, 3), 0.5);
}

TEST(Canvas, DrawsOfOtherShapesAreRefused) {
  CanvasDraws draws;
  EXPECT_THROW(check_draws(draws, 4, 8), Error);
  draws.init = tensor::Tensor::zeros({1, 4}, tensor::DType::i32);
  draws.noise = tensor::Tensor::zeros({3, 4}, tensor::DType::i32);
  EXPECT_NO_THROW(check_draws(draws, 4, 8));
  EXPECT_THROW(check_draws(draws, 5, 8), Error);
  draws.uniform = tensor::Tensor::zeros({2, 4}, tensor::DType::f32);
  EXPECT_THROW(check_draws(draws, 4, 8), Error);
  draws.uniform = tensor::Tensor::zeros({3, 4}, tensor::DType::f32);
  EXPECT_NO_THROW(check_draws(draws, 4, 8));
  draws.init.row<int32_t>(0)[2] = 8;
  EXPECT_THROW(check_draws(draws, 4, 8), Error);
}

}  // namespace
}  // namespace tessera::sample

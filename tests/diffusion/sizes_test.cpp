#include "diffusion/sizes.h"

#include <gtest/gtest.h>

#include "base/fail.h"
#include "models/published_models.h"
#include "models/registry.h"

namespace tessera::diffusion {
namespace {

TEST(CheckTokens, RefusesAbsurdSizesAtOnce) {
  const auto spec = models::pipeline_of(
      "dit_moe",
      {models::published_model("dit_moe_s")->description.at("parts").at("transformer").at("config"),
       "small"});
  EXPECT_NO_THROW(check_tokens(spec.layout(0, 0), 2));
  try {
    check_tokens(spec.layout(1 << 17, 1 << 17), 2);
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
  EXPECT_EQ(says(1000, 2), "`width` 1000: expected a multiple of 16: 992 or 1008");
  EXPECT_EQ(says(1000, 1), "");
  EXPECT_EQ(says(7, 2), "`width` 7: expected a multiple of 16: 16");
}

TEST(CheckedChunk, IsNoMoreThanThereIs) {
  for (const int64_t chunk : {0, 1, 7, 64}) EXPECT_EQ(checked_chunk(chunk, 64), chunk);
  try {
    checked_chunk(65, 64);
    FAIL() << "65 of 64 lines were accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_STREQ(e.what(),
                 "`vae_chunk` 65: an image here has 64 lines; use 1 to 64, or leave it out");
  }
}

}  // namespace
}  // namespace tessera::diffusion

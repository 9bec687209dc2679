#include "models/flux2_pipeline.h"

#include "models/tiny_model.h"

namespace tessera::models {
namespace {

constexpr const char* kType = "Flux2Transformer2DModel";

TEST(Flux2Pipeline, NamesWhatIsNotSupported) {
  EXPECT_NE(spec_refusal(kType, "{}").find("guidance_embeds"), std::string::npos);
  EXPECT_NE(spec_refusal(kType, R"({"guidance_embeds": false, "axes_dims_rope": [32, 32, 64]})")
                .find("32, 32, 64"),
            std::string::npos);
  EXPECT_NE(
      spec_refusal(kType, R"({"guidance_embeds": false, "patch_size": 2})").find("patch_size"),
      std::string::npos);
}

TEST(Flux2Pipeline, TheDistilledModelRunsFourStepsWithoutGuidance) {
  const base::Json config{{"guidance_embeds", false}};
  Source source{config, "c"};
  const PipelineSpec whole = pipeline_of(kType, source);
  source.distilled = true;
  const PipelineSpec distilled = pipeline_of(kType, source);
  EXPECT_EQ(whole.defaults.steps, 50);
  EXPECT_EQ(whole.defaults.guidance, 4);
  EXPECT_EQ(distilled.defaults.steps, 4);
  EXPECT_TRUE(distilled.distilled);
  EXPECT_EQ(distilled.form, nn::LatentForm::patches);
}

// Values of the reference pipeline.
TEST(Flux2Pipeline, TheShiftFollowsTokensAndSteps) {
  EXPECT_NEAR(flux2_shift(15, 4), 1.9451315706318737, 1e-12);
  EXPECT_NEAR(flux2_shift(1024, 20), 1.916347620770358, 1e-12);
  EXPECT_NEAR(flux2_shift(4301, 4), flux2_shift(4301, 50), 1e-12);
}

}  // namespace
}  // namespace tessera::models

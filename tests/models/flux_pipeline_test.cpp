#include "models/flux_pipeline.h"

#include "models/tiny_model.h"

namespace tessera::models {
namespace {

constexpr const char* kType = "FluxTransformer2DModel";

TEST(FluxPipeline, MissingKeysHaveTheDefaultsOfDiffusers) {
  const FluxConfig c = parse_flux_config(base::Json::object(), "c");
  EXPECT_EQ(c.hidden(), 3072);
  EXPECT_EQ(c.blocks(), 57);
  EXPECT_FALSE(c.guidance_embeds);
}

TEST(FluxPipeline, NamesWhatIsNotSupported) {
  EXPECT_NE(spec_refusal(kType, R"({"axes_dims_rope": [16, 56, 54]})").find("16, 56, 54"),
            std::string::npos);
  EXPECT_NE(spec_refusal(kType, R"({"patch_size": 2})").find("patch_size 2"), std::string::npos);
}

TEST(FluxPipeline, WithoutGuidanceAsAnInputItIsSchnell) {
  const auto dev = pipeline_of(kType, {base::Json::parse(R"({"guidance_embeds": true})"), "c"});
  EXPECT_EQ(dev.defaults.steps, 28);
  EXPECT_EQ(dev.defaults.guidance, 3.5f);
  EXPECT_EQ(dev.text_parts[1].tokens, 512);
  EXPECT_EQ(dev.example(1).tensors.at("encoder_hidden_states").size(1), 512);
  const auto schnell =
      pipeline_of(kType, {base::Json::parse(R"({"guidance_embeds": false})"), "c"});
  EXPECT_EQ(schnell.defaults.steps, 4);
  EXPECT_EQ(schnell.defaults.guidance, 1.0f);
  EXPECT_EQ(schnell.text_parts[1].tokens, 256);
  EXPECT_EQ(schnell.example(1).tensors.at("encoder_hidden_states").size(1), 256);
}

TEST(FluxPipeline, KnowsWhatItsPipelineAdds) {
  const auto spec = pipeline_of(kType, {base::Json::object(), "c"});
  nn::Conditioning c;
  spec.add_conditions({.batch = 2, .guidance = 3.5f}, c);
  EXPECT_EQ(c.tensors["guidance"].to_floats(), (std::vector<float>{3.5f, 3.5f}));
  EXPECT_TRUE(spec.even_sigmas);
  EXPECT_EQ(spec.form, nn::LatentForm::packed);
}

}  // namespace
}  // namespace tessera::models

#include "models/pixart_pipeline.h"

#include "models/tiny_model.h"

namespace tessera::models {
namespace {

constexpr const char* kType = "PixArtTransformer2DModel";

TEST(PixartPipeline, MissingKeysHaveTheDefaultsOfDiffusers) {
  const PixartConfig c =
      parse_pixart_config(base::Json::parse(R"({"caption_channels": 4096})"), "c");
  EXPECT_EQ(c.hidden(), 1152);
  EXPECT_EQ(c.interpolation_scale, 2);
  EXPECT_TRUE(c.use_additional_conditions);
}

TEST(PixartPipeline, NamesWhatIsNotSupported) {
  EXPECT_NE(spec_refusal(kType, "{}").find("'caption_channels' is missing"), std::string::npos);
  EXPECT_NE(spec_refusal(kType, R"({"norm_type": "layer_norm"})").find("norm_type"),
            std::string::npos);
  EXPECT_NE(spec_refusal(kType, R"({"caption_channels": 8, "cross_attention_dim": 8})").find("fit"),
            std::string::npos);
}

TEST(PixartPipeline, KnowsWhatItsPipelineAdds) {
  const auto spec = pipeline_of(kType, {base::Json::parse(R"({"caption_channels": 8})"), "c"});
  nn::Conditioning c;
  spec.add_conditions({.batch = 2, .height = 512, .width = 1024}, c);
  EXPECT_EQ(c.tensors["resolution"].to_floats(), (std::vector<float>{512, 1024, 512, 1024}));
  EXPECT_EQ(c.tensors["aspect_ratio"].to_floats(), (std::vector<float>{0.5f, 0.5f}));
  EXPECT_EQ(spec.layout(0, 0).size[1], 128);
}

}  // namespace
}  // namespace tessera::models

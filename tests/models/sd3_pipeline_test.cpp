#include "models/sd3_pipeline.h"

#include "models/tiny_model.h"

namespace tessera::models {
namespace {

constexpr const char* kType = "SD3Transformer2DModel";

TEST(Sd3Pipeline, MissingKeysHaveTheDefaultsOfDiffusers) {
  const Sd3Config c = parse_sd3_config(base::Json::object(), "c");
  EXPECT_EQ(c.hidden(), 1152);
  EXPECT_FALSE(c.qk_norm);
}

TEST(Sd3Pipeline, NamesWhatIsNotSupported) {
  EXPECT_NE(spec_refusal(kType, R"({"qk_norm": "layer_norm"})").find("qk_norm"), std::string::npos);
  EXPECT_NE(spec_refusal(kType, R"({"dual_attention_layers": [18]})").find("holds 18"),
            std::string::npos);
  EXPECT_NE(spec_refusal(kType, R"({"caption_projection_dim": 8})").find("18 x 64"),
            std::string::npos);
}

TEST(Sd3Pipeline, KnowsWhatItsPipelineAdds) {
  const auto spec = pipeline_of(kType, {base::Json::object(), "c"});
  EXPECT_EQ(spec.prefix(spec.example(2)), 333);
  EXPECT_EQ(spec.layout(96, 64).tokens(), 48 * 32);
  EXPECT_NE(usage_error([&] { spec.layout(97, 64); }).find("64 x 97"), std::string::npos);
}

}  // namespace
}  // namespace tessera::models

#include "models/z_image_pipeline.h"

#include "models/tiny_model.h"

namespace tessera::models {
namespace {

constexpr const char* kType = "ZImageTransformer2DModel";

TEST(ZImagePipeline, MissingKeysHaveTheDefaultsOfDiffusers) {
  const ZImageConfig c = parse_z_image_config(base::Json::object(), "c");
  EXPECT_EQ(c.head_dim(), 128);
  EXPECT_EQ(c.inner(), 10240);
  EXPECT_EQ(c.blocks(), 32);
}

TEST(ZImagePipeline, NamesWhatIsNotSupported) {
  EXPECT_NE(spec_refusal(kType, R"({"axes_dims": [32, 48, 46]})").find("32, 48, 46"),
            std::string::npos);
  EXPECT_NE(spec_refusal(kType, R"({"all_patch_size": [2, 4]})").find("2, 4"), std::string::npos);
  EXPECT_NE(spec_refusal(kType, R"({"all_f_patch_size": [2]})").find("all_f_patch_size"),
            std::string::npos);
  EXPECT_NE(spec_refusal(kType, R"({"n_heads": 7})").find("3840"), std::string::npos);
  EXPECT_NE(spec_refusal(kType, R"({"n_layers": -1})").find("n_layers"), std::string::npos);
}

TEST(ZImagePipeline, GuidanceCountsFromZero) {
  const auto spec = pipeline_of(kType, {base::Json::object(), "c"});
  EXPECT_EQ(spec.no_guidance, 0);
  EXPECT_TRUE(spec.negated);
  EXPECT_EQ(spec.defaults.steps, 8);
  EXPECT_EQ(spec.defaults.guidance, 0);
}

}  // namespace
}  // namespace tessera::models

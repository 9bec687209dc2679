#include "models/hunyuan_dit_pipeline.h"

#include "models/tiny_model.h"

namespace tessera::models {
namespace {

constexpr const char* kType = "HunyuanDiT2DModel";

TEST(HunyuanDitPipeline, MissingKeysHaveTheDefaultsOfDiffusers) {
  const HunyuanDitConfig c = parse_hunyuan_dit_config(base::Json::object(), "c");
  EXPECT_EQ(c.hidden(), 1408);
  EXPECT_EQ(c.out_channels(), 8);
}

TEST(HunyuanDitPipeline, NamesWhatIsNotSupported) {
  EXPECT_NE(spec_refusal(kType, R"({"norm_type": "ada_norm_single"})").find("norm_type"),
            std::string::npos);
  EXPECT_NE(spec_refusal(kType, R"({"num_layers": 5})").find("5 layers"), std::string::npos);
}

TEST(HunyuanDitPipeline, KnowsWhatItsPipelineAdds) {
  const auto spec = pipeline_of(kType, {base::Json::object(), "c"});
  nn::Conditioning c;
  spec.add_conditions({.batch = 1, .height = 512, .width = 768}, c);
  EXPECT_EQ(c.tensors["image_meta_size"].to_floats(),
            (std::vector<float>{1024, 1024, 512, 768, 0, 0}));
  EXPECT_EQ(c.tensors["style"].to_ints(), (std::vector<int64_t>{0}));
}

}  // namespace
}  // namespace tessera::models

#include "models/cogvideox_pipeline.h"

#include "models/tiny_model.h"

namespace tessera::models {
namespace {

constexpr const char* kType = "CogVideoXTransformer3DModel";

TEST(CogVideoXPipeline, MissingKeysHaveTheDefaultsOfDiffusers) {
  const CogVideoXConfig c = parse_cogvideox_config(base::Json::object(), "c");
  EXPECT_EQ(c.hidden(), 1920);
  EXPECT_FALSE(c.rotary);
}

TEST(CogVideoXPipeline, NamesWhatIsNotSupported) {
  EXPECT_NE(spec_refusal(kType, R"({"use_learned_positional_embeddings": true})").find("learned"),
            std::string::npos);
  EXPECT_NE(spec_refusal(kType, R"({"ofs_embed_dim": 512})").find("ofs_embed_dim"),
            std::string::npos);
}

TEST(CogVideoXPipeline, KnowsWhatItsPipelineAdds) {
  const auto spec = pipeline_of(kType, {base::Json::object(), "c"});
  const nn::TokenLayout l = spec.layout(0, 0);
  EXPECT_EQ(l.size, (std::array<int64_t, 3>{13, 60, 90}));
  EXPECT_EQ(spec.form, nn::LatentForm::video);
  const auto five = pipeline_of(kType, {base::Json::parse(R"({"patch_size_t": 2})"), "c"});
  EXPECT_EQ(five.layout(0, 0).size[0], 14);
  EXPECT_EQ(five.trained_frames, 49);
  EXPECT_NE(usage_error([&] { five.layout(0, 0, 13); }).find("13 frames"), std::string::npos);
}

// CogVideoX1.5-5B: the config has the extent of positions in place of a usual size.
TEST(CogVideoXPipeline, MakesOfOnePointFiveWhatItsMakersDo) {
  const auto spec = pipeline_of(
      kType, {base::Json::parse(R"({"patch_size_t": 2, "sample_frames": 81, "sample_height": 300,
                                    "sample_width": 300})"),
              "c"});
  EXPECT_EQ(spec.layout(0, 0).size, (std::array<int64_t, 3>{22, 96, 170}));
  EXPECT_EQ(spec.trained_frames, 81);
  EXPECT_EQ(spec.frame_rate, 16);
  EXPECT_EQ(pipeline_of(kType, {base::Json::object(), "c"}).frame_rate, 8);
}

}  // namespace
}  // namespace tessera::models

#include "models/pipeline_spec.h"

#include "models/tiny_model.h"

namespace tessera::models {
namespace {

TEST(PipelineSpec, TakesNoClasses) {
  const auto spec = pipeline_of("SD3Transformer2DModel", {base::Json::object(), "c"});
  EXPECT_EQ(spec.classes, 0);
  EXPECT_NE(usage_error([&] { spec.conditioning({1}, true); }).find("`prompt`"), std::string::npos);
  EXPECT_FALSE(spec.facts.empty());
}

TEST(PipelineSpec, ALayoutIsTheTrainedOneUnlessAsked) {
  PipelineSpec spec;
  spec.trained = square_layout(4, 2, 8);
  EXPECT_EQ(spec.layout(0, 10).size, (std::array<int64_t, 3>{1, 8, 10}));
  EXPECT_THROW(spec.layout(7, 8), Error);
}

TEST(PipelineSpec, HeadsHaveAnEvenWidth) {
  const base::Json none = base::Json::object();
  const base::ConfigReader read(none, "c");
  EXPECT_NO_THROW(check_heads(read, 3, 12));
  EXPECT_THROW(check_heads(read, 3, 11), Error);
  EXPECT_THROW(check_heads(read, 1 << 20, 512), Error);
}

TEST(PipelineSpec, NetworksThatTakeAnImageBesideTheNoiseAreRefused) {
  // FLUX.1-Fill has 384 channels and runs; FLUX.1-Canny and -Depth have 128.
  for (const auto& [type, channels] : {std::pair{"SD3Transformer2DModel", 384},
                                       {"FluxTransformer2DModel", 128},
                                       {"CogVideoXTransformer3DModel", 384}})
    EXPECT_NE(
        spec_refusal(type,
                     fmt::format(R"({{"in_channels": {}, "out_channels": 64}})", channels).c_str())
            .find("an image beside the noise"),
        std::string::npos)
        << type;
}

}  // namespace
}  // namespace tessera::models

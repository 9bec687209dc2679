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
  for (const char* type :
       {"SD3Transformer2DModel", "FluxTransformer2DModel", "CogVideoXTransformer3DModel"})
    EXPECT_NE(spec_refusal(type, R"({"in_channels": 384, "out_channels": 64})")
                  .find("an image beside the noise"),
              std::string::npos)
        << type;
}

}  // namespace
}  // namespace tessera::models

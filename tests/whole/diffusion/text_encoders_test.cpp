#include "diffusion/text_encoders.h"

#include "test_paths.h"
#include "whole/golden.h"

namespace tessera {
namespace {

using golden::Scratch;
using tensor::Tensor;

const std::string kVideo = TESSERA_TEST_DATA "/diffusers/cogvideox_2b/model";

TEST(TextEncoders, ForwardGivesStates) {
  const Scratch scratch;
  const std::vector<int32_t> ids{5, 6, 1, 0}, mask{1, 1, 1, 0}, holes{1, 0, 1, 0};
  const auto file = [&](const std::vector<int32_t>& attended) {
    load::write_safetensors(
        scratch / "in.safetensors",
        {{"input_ids", Tensor::from(std::span<const int32_t>(ids), {1, 4})},
         {"attention_mask", Tensor::from(std::span<const int32_t>(attended), {1, 4})}});
    ForwardRequest q;
    q.component = ModelPart::text_encoder;
    q.inputs = scratch / "in.safetensors";
    q.outputs = scratch / "out.safetensors";
    q.trace = true;
    Model::open(kVideo, golden::options(Precision::f32)).forward(q);
    return load::SafetensorsFile(q.outputs);
  };
  const auto out = file(mask);
  EXPECT_EQ(out.get("last_hidden_state").shape(), (tensor::Shape{1, 4, 32}));
  EXPECT_TRUE(out.has("hidden.2"));
  EXPECT_THROW(file(holes), Error);
}

}  // namespace
}  // namespace tessera

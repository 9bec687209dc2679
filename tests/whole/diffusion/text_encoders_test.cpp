#include "diffusion/text_encoders.h"

#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "runtime/resolve_model.h"
#include "test_paths.h"
#include "whole/golden.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using golden::Scratch;
using tensor::Tensor;

const std::string kVideo = TESSERA_TEST_DATA "/diffusers/cogvideox_2b/model";

GenerateRequest request(const std::string& prompt) {
  GenerateRequest q;
  q.prompts = {prompt};
  q.width = q.height = 32;
  q.frames = 1;
  q.steps = 1;
  q.guidance = 1;
  return q;
}

ErrorCode code = ErrorCode::usage;
std::string refusal(const std::string& model, const GenerateRequest& q) {
  try {
    Model::open(model, golden::options(Precision::f32)).generate(q);
  } catch (const Error& e) {
    code = e.code();
    return e.what();
  }
  return "nothing was refused";
}

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

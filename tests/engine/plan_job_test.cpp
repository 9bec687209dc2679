#include "engine/denoise.h"
#include "golden.h"

namespace tessera {
namespace {

using tensor::Tensor;

std::string refusal(const std::string& model, const GenerateRequest& request) {
  try {
    Model::open(model, golden::options(Precision::f32)).generate(request);
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was refused";
}

const std::string kPixart = TESSERA_TEST_DATA "/diffusers/pixart_alpha/model/transformer";
const std::string kVideo = TESSERA_TEST_DATA "/diffusers/cogvideox_2b/model/transformer";
const std::string kClasses = TESSERA_TEST_DATA "/moe/dit_moe_flash/model";

TEST(PlanJob, TextAndClassesAreNotMistaken) {
  GenerateRequest classes;
  classes.classes = {"1"};
  EXPECT_NE(refusal(kPixart, classes).find("give --prompt"), std::string::npos);
  GenerateRequest text;
  text.prompts = {"a cat"};
  EXPECT_NE(refusal(kClasses, text).find("give --class"), std::string::npos);
}

TEST(PlanJob, AFolderWithoutASchedulerIsNamed) {
  const golden::Scratch scratch;
  load::write_safetensors(scratch / "text.safetensors",
                          {{"prompt_embeds", Tensor::zeros({1, 4, 32}, tensor::DType::f32)}});
  GenerateRequest text;
  text.embeddings = scratch / "text.safetensors";
  text.guidance = 1;
  text.width = text.height = 64;
  text.decode = false;
  EXPECT_NE(refusal(kPixart, text).find("scheduler/scheduler_config.json"), std::string::npos);
  text.guidance = 3;
  EXPECT_NE(refusal(TESSERA_TEST_DATA "/diffusers/pixart_alpha/model", text)
                .find("'negative_prompt_embeds'"),
            std::string::npos);
}

TEST(PlanJob, FramesFitTheVideo) {
  GenerateRequest text;
  text.frames = 8;
  EXPECT_NE(refusal(kVideo, text).find("4n + 1, as 5 or 9"), std::string::npos);
  EXPECT_NE(refusal(kPixart, text).find("makes pictures"), std::string::npos);
  text.frames = 9;
  text.width = 20;
  EXPECT_NE(refusal(kVideo, text).find("--width 20"), std::string::npos);
}

}  // namespace
}  // namespace tessera

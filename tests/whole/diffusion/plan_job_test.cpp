#include "diffusion/plan_job.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "kernels/random_values.h"
#include "runtime/resolve_model.h"
#include "test_paths.h"
#include "whole/pixart_text.h"

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
  EXPECT_NE(refusal(kPixart, classes).find("give `prompt`"), std::string::npos);
  GenerateRequest text;
  text.prompts = {"a cat"};
  EXPECT_NE(refusal(kClasses, text).find("give `classes`"), std::string::npos);
}

// The notes of a planned request, without a run.
std::vector<std::string> notes_of(const std::string& model, GenerateRequest request) {
  const golden::Scratch scratch;
  request.decode = false;
  request.steps = 1;
  request.save_latents = scratch / "latents.safetensors";
  return Model::open(model, golden::options(Precision::f32)).generate(request).report.notes;
}

TEST(PlanJob, OptionsWithoutEffectAreSaid) {
  const std::string data = TESSERA_TEST_DATA "/diffusers/";
  GenerateRequest video;
  video.prompts = {"waves"};
  video.width = 48, video.height = 32, video.frames = 9;
  EXPECT_EQ(notes_of(data + "cogvideox_2b/model", video), std::vector<std::string>{});
  video.negative_prompt = "mist";
  EXPECT_EQ(notes_of(data + "cogvideox_2b/model", video), std::vector<std::string>{});
  video.guidance = 1;
  EXPECT_EQ(notes_of(data + "cogvideox_2b/model", video),
            std::vector<std::string>{
                "`negative_prompt` has no effect: it needs `guidance` above 1, which is 1"});
  video.negative_prompt.reset();
  video.guidance = 0.5f;
  video.true_guidance = 4;
  video.vae_tiling = VaeTiling::on;
  video.vae_chunk = 8;
  EXPECT_EQ(notes_of(data + "cogvideox_2b/model", video),
            (std::vector<std::string>{
                "`guidance` 0.5 has no effect: below 1 there is none, as with 1",
                "`true_guidance` has no effect: the guidance of this model is `guidance`",
                "`vae_tiling` has no effect: nothing is decoded",
                "`vae_chunk` has no effect: nothing is decoded"}));
  GenerateRequest classes;
  classes.classes = {"1"};
  classes.text_tokens = 7;
  EXPECT_EQ(notes_of(kClasses, classes),
            std::vector<std::string>{"`text_tokens` has no effect: this model reads no text"});
  classes.negative_prompt = "mist";
  EXPECT_NE(refusal(kClasses, classes).find("reads no text"), std::string::npos);
}

TEST(PlanJob, AFolderAdvisesStepsAndGuidance) {
  const golden::Scratch scratch;
  const std::filesystem::path model = scratch / "model";
  std::filesystem::copy(kClasses, model, std::filesystem::copy_options::recursive);
  const auto advise = [&](const char* text) {
    std::ofstream(model / "generation_config.json") << text;
  };
  GenerateRequest one;
  one.classes = {"1"};
  one.decode = false;
  const auto run = [&] {
    return Model::open(model, golden::options(Precision::f32)).generate(one);
  };
  advise(R"({"num_inference_steps": 3, "guidance_scale": 2})");
  const GenerateResult advised = run();
  EXPECT_EQ(advised.report.step_seconds.size(), 3u);
  advise(R"({"guidance_scale": 1})");
  EXPECT_EQ(Model::open(model, golden::options(Precision::f32)).inspect({}).sequences, 1);
  one.steps = 3;
  one.guidance = 2;
  advise("{}");
  EXPECT_EQ(run().latents, advised.latents);
  for (const char* bad : {R"({"num_inference_steps": 0})", R"({"guidance_scale": -1})", "["}) {
    advise(bad);
    EXPECT_NE(refusal(model, one).find("generation_config.json"), std::string::npos) << bad;
  }
}

TEST(PlanJob, AFolderAdvisesTheLengthOfTexts) {
  const golden::Scratch scratch;
  const std::filesystem::path model = scratch / "model";
  std::filesystem::copy(runtime::resolve_model("scenes"), model,
                        std::filesystem::copy_options::recursive);
  const auto advise = [&](const char* text) {
    std::ofstream(model / "generation_config.json") << text;
  };
  GenerateRequest one;
  one.prompts = {"a red circle above a black cross"};
  one.steps = 1;
  one.guidance = 1;
  one.decode = false;
  const auto latents = [&] {
    return Model::open(model, golden::options(Precision::f32)).generate(one).latents;
  };
  advise("{}");
  const std::vector<float> usual = latents();
  one.text_tokens = 5;
  const std::vector<float> asked = latents();
  one.text_tokens = 0;
  advise(R"({"max_sequence_length": 5})");
  EXPECT_EQ(latents(), asked);
  EXPECT_NE(asked, usual);
  one.text_tokens = 256;
  EXPECT_EQ(latents(), usual) << "a request goes before its folder";
  advise(R"({"max_sequence_length": 0})");
  EXPECT_NE(refusal(model, one).find("generation_config.json"), std::string::npos);
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
  EXPECT_NE(refusal(kPixart, text).find("makes images"), std::string::npos);
  text.frames = 9;
  text.width = 20;
  EXPECT_NE(refusal(kVideo, text).find("`width` 20"), std::string::npos);
}

TEST(PlanJob, RescaledGuidanceNeedsGuidance) {
  GenerateRequest request;
  request.classes = {"1"};
  request.decode = false;
  request.guidance_rescale = 0.7f;
  request.guidance = 1;
  EXPECT_NE(refusal(kClasses, request).find("needs `guidance` other than 1"), std::string::npos);
  request.guidance = 2;
  request.guidance_rescale = 1.5f;
  EXPECT_NE(refusal(kClasses, request).find("from 0 to 1"), std::string::npos);
}

TEST(PlanJob, DdpmNeedsAModelThatPredictsVariances) {
  GenerateRequest request;
  request.classes = {"1"};
  request.steps = 1;
  request.scheduler = SchedulerName::ddpm;
  EXPECT_NE(refusal("shapes", request).find("use `scheduler` rectified-flow"), std::string::npos);
  request.scheduler = SchedulerName::rectified_flow;
  EXPECT_EQ(refusal("shapes", request), "nothing was refused");
}

TEST(PlanJob, BinningNeedsATable) {
  GenerateRequest request;
  request.classes = {"1"};
  request.decode = false;
  request.binning = true;
  EXPECT_NE(refusal(kClasses, request).find("no table of trained sizes"), std::string::npos);
}

// A PixArt with embeddings for text, run to the end.
struct Pixart {
  golden::Scratch scratch;
  GenerateRequest request;

  Pixart() {
    request.embeddings = golden::pixart_text(scratch);
    request.steps = 2;
    request.guidance = 4;
    request.width = request.height = 32;
  }
  GenerateResult run(const RunControl& control = {}) const {
    return Model::open(TESSERA_TEST_DATA "/diffusers/pixart_alpha/model",
                       golden::options(Precision::f32))
        .generate(request, control);
  }
};

TEST(PlanJob, RescaledGuidanceChangesTheLatentsAndZeroDoesNot) {
  Pixart pixart;
  pixart.request.decode = false;
  const auto plain = pixart.run().latents;
  pixart.request.guidance_rescale = 0;
  EXPECT_EQ(pixart.run().latents, plain);
  pixart.request.guidance_rescale = 0.7f;
  EXPECT_NE(pixart.run().latents, plain);
}

// A folder with changed descriptions.
struct Changed {
  golden::Scratch scratch;
  std::filesystem::path model = scratch / "model";
  explicit Changed(const std::string& of) {
    std::filesystem::copy(of, model, std::filesystem::copy_options::recursive);
  }
  void say(const char* file, const std::string& from, const std::string& to) const {
    std::ifstream before(model / file);
    std::string text(std::istreambuf_iterator<char>(before), {});
    ASSERT_NE(text.find(from), std::string::npos);
    std::ofstream(model / file) << text.replace(text.find(from), from.size(), to);
  }
};
const char* const kScheduler = "scheduler/scheduler_config.json";

// A pipeline for editing has the network of a pipeline without editing.
TEST(PlanJob, SaysWhatItComputesOfAnotherPipeline) {
  const Changed folder(runtime::resolve_model("scenes"));
  GenerateRequest one;
  one.prompts = {"a red circle"};
  one.guidance = 1;
  EXPECT_TRUE(notes_of(folder.model, one).empty());
  folder.say("model_index.json", "StableDiffusion3Pipeline", "StableDiffusion3EditPipeline");
  EXPECT_EQ(notes_of(folder.model, one),
            std::vector<std::string>{
                "this folder is of a 'StableDiffusion3EditPipeline', which is computed as a "
                "StableDiffusion3Pipeline: from text alone"});
}

TEST(PlanJob, AConsistencyModelTakesFourStepsWithoutGuidance) {
  const Changed folder(TESSERA_TEST_DATA "/diffusers/cogvideox_2b/model");
  const auto made = [&] {
    GenerateRequest video;
    video.prompts = {"waves"};
    video.width = 48, video.height = 32, video.frames = 1;
    video.decode = false;
    const auto result = Model::open(folder.model, golden::options(Precision::f32)).generate(video);
    return std::pair(result.steps, result.guidance);
  };
  EXPECT_EQ(made(), std::pair(50, 6.0f));
  folder.say("model_index.json", "CogVideoXDDIMScheduler", "LCMScheduler");
  EXPECT_EQ(made(), std::pair(4, 1.0f));
}

// With `leading` spacing a single step starts at the end of training: the result is noise.
TEST(PlanJob, AFirstStepWithoutNoiseIsSaid) {
  const Changed folder(TESSERA_TEST_DATA "/diffusers/cogvideox_2b/model");
  folder.say(kScheduler, "trailing", "leading");
  GenerateRequest video;
  video.prompts = {"waves"};
  video.width = 48, video.height = 32, video.frames = 9;
  const auto notes = notes_of(folder.model, video);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0].find("step 1 of 1 is at timestep "), 0u) << notes[0];
}

// Patches span two frames: 9 frames are three latent frames, so an additional frame is denoised but
// not decoded.
TEST(PlanJob, AVideoOfTheTrainedLengthIsTheSameAskedForOrNot) {
  const Changed folder(TESSERA_TEST_DATA "/diffusers/cogvideox_2b/model");
  const std::string weights = folder.model / "transformer/diffusion_pytorch_model.safetensors";
  std::map<std::string, Tensor> tensors;
  {
    const load::SafetensorsFile in(weights);
    for (const auto& [each, entry] : in.entries()) tensors[each] = in.get(each).contiguous();
  }
  const auto shaped = [&](const std::string& name, const tensor::Shape& shape) {
    tensors[name] = kernels::random_tensor(shape, tensor::DType::f32, 7, 0.1f);
  };
  shaped("patch_embed.proj.weight", {64, 16 * 2 * 2 * 2});
  shaped("proj_out.weight", {16 * 2 * 2 * 2, 64});
  shaped("proj_out.bias", {16 * 2 * 2 * 2});
  load::write_safetensors(weights, tensors);
  folder.say("transformer/config.json", "\"patch_size_t\": null", "\"patch_size_t\": 2");
  folder.say("transformer/config.json", "\"sample_frames\": 49", "\"sample_frames\": 9");
  GenerateRequest request;
  request.prompts = {"waves"};
  request.steps = 2;
  request.width = 48;
  request.height = 32;
  const auto run = [&] {
    return Model::open(folder.model, golden::options(Precision::f32)).generate(request);
  };
  const auto left_out = run();
  request.frames = 9;
  const auto asked = run();
  ASSERT_EQ(left_out.images.size(), 9u);
  EXPECT_EQ(left_out.latents, asked.latents);
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(left_out.images[i].rgb, asked.images[i].rgb) << i;
}

TEST(PlanJob, VideosSayHowManyFramesTheyGet) {
  const golden::Scratch scratch;
  load::write_safetensors(scratch / "text.safetensors",
                          {{"prompt_embeds", Tensor::zeros({1, 226, 32}, tensor::DType::f32)}});
  GenerateRequest request;
  request.embeddings = scratch / "text.safetensors";
  request.steps = 1;
  request.guidance = 1;
  request.width = request.height = 32;
  for (const auto& [asked, got] : {std::pair<int64_t, size_t>{1, 1}, {5, 8}, {9, 9}, {13, 16}}) {
    request.frames = asked;
    std::vector<std::string> notes;
    RunControl control;
    control.on_note = [&](const std::string& note) { notes.push_back(note); };
    const auto result = Model::open(TESSERA_TEST_DATA "/diffusers/cogvideox_2b/model",
                                    golden::options(Precision::bf16))
                            .generate(request, control);
    EXPECT_EQ(result.images.size(), got);
    EXPECT_EQ(notes.size(), static_cast<size_t>(asked) == got ? 0u : 1u);
    EXPECT_EQ(result.report.notes, notes);
  }
}

}  // namespace
}  // namespace tessera

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>

#include "device/leg.h"
#include "tensor/tensor.h"
#include "test_paths.h"
#include "whole/golden.h"
#include "whole/llada_golden.h"
#include "whole/text_model.h"

namespace tessera::device {
namespace {

using golden::Scratch;

RunOptions options(const std::string& device, const std::string& plan,
                   Precision precision = Precision::bf16) {
  RunOptions run = golden::options(precision);
  run.device = parse_device(device);
  run.plan = parse_plan(plan);
  // Experts alone compute alike: other products in int8 keep activations in bf16 on a GPU.
  if (precision == Precision::int8) run.quantise_rules = "attn=bf16,mlp=bf16";
  return run;
}

// The error of a latent from precision, other kernels and four steps of guidance.
double tolerance_of(Precision precision) { return precision == Precision::f32 ? 1e-3 : 5e-2; }

// Four steps with guidance.
GenerateResult generated(const std::string& folder, const RunOptions& run) {
  GenerateRequest request;
  request.classes = {"1", "3"};
  request.steps = 4;
  request.guidance = 1.5f;
  request.decode = false;
  return Model::open(std::string(TESSERA_TEST_DATA) + "/moe/" + folder + "/model", run)
      .generate(request);
}

void expect_equal(const std::string& folder, const std::string& plan,
                  Precision precision = Precision::bf16) {
  const GenerateResult here = generated(folder, options("cpu", plan, precision));
  const Gpu gpu;
  const GenerateResult there = generated(folder, options("cuda", plan, precision));
  const testing::ScopedTrace trace(__FILE__, __LINE__, folder + " " + plan);
  expect_same(there.latents, here.latents, tolerance_of(precision));
  gpu.expect_kernels(100);
  EXPECT_EQ(there.report.device, "cuda:0 (" + gpu.name() + ")");
  ASSERT_EQ(there.report.layers.size(), here.report.layers.size());
  for (size_t l = 0; l < here.report.layers.size(); ++l)
    EXPECT_NEAR(there.report.layers[l].mean_experts, here.report.layers[l].mean_experts,
                bitwise() ? 0 : 1);
}

TEST(RunsOnGpu, GenerateIsTheCpus) {
  expect_equal("dit_moe_flash", "");
  expect_equal("dit_moe_flash", "", Precision::f32);
  expect_equal("dit_moe_flash", "", Precision::int8);
  expect_equal("dit_moe_timm", "");
}

GenerateResult shapes_of(const std::string& folder, const std::string& device,
                         Precision precision) {
  RunOptions run = options(device, "", precision);
  run.quantise_rules = "";
  GenerateRequest request;
  request.classes = {"1", "3"};
  request.steps = 4;
  request.decode = false;
  return Model::open(folder, run).generate(request);
}

TEST(RunsOnGpu, Int8ProductsAreNearBf16AndTakeFewerBytes) {
  const std::string shapes = TESSERA_MODELS_DIR "/shapes";
  const GenerateResult want = shapes_of(shapes, "cpu", Precision::f32);
  const Scratch scratch;
  QuantiseRequest request{.output = scratch / "q"};
  request.dtype = Precision::int8;
  (void)Model::open(shapes, options("cpu", "")).quantise(request);
  const Gpu gpu;
  const GenerateResult bf16 = shapes_of(shapes, "cuda", Precision::bf16),
                       int8 = shapes_of(shapes, "cuda", Precision::int8);
  EXPECT_LT(golden::l2_error(int8.latents, want.latents), 5e-2);
  EXPECT_GT(golden::l2_error(int8.latents, bf16.latents), 0);
  EXPECT_LT(int8.report.peak_bytes.weights, 0.8 * bf16.report.peak_bytes.weights);
  EXPECT_EQ(shapes_of(request.output, "cuda", Precision::bf16).latents, int8.latents);
}

TEST(RunsOnGpu, Int4IsRefusedByName) {
  const Gpu gpu;
  const std::string shapes = TESSERA_MODELS_DIR "/shapes";
  const auto message_of = [](const std::string& model, Precision precision,
                             const std::string& rules) {
    RunOptions run = options("cuda", "", precision);
    run.quantise_rules = rules;
    return golden::error_of([&] { (void)Model::open(model, run); });
  };
  EXPECT_NE(message_of(shapes, Precision::int4, "").find("`dtype` int4: int4 is"),
            std::string::npos);
  EXPECT_NE(message_of(shapes, Precision::bf16, "attn=int4").find("`quantise_rules` attn=int4"),
            std::string::npos);
  const Scratch scratch;
  for (const auto& [name, part] :
       {std::pair{"shapes", "experts in int4"}, {"scenes", "products in int4"}}) {
    QuantiseRequest request{.output = scratch / name};
    request.dtype = Precision::int4;
    (void)Model::open(std::string(TESSERA_MODELS_DIR "/") + name, options("cpu", ""))
        .quantise(request);
    EXPECT_NE(message_of(request.output, Precision::bf16, "").find(part), std::string::npos);
  }
}

TEST(RunsOnGpu, RanksThatAreThreadsShareIt) {
  for (const char* plan : {"data=2", "distrifusion=2", "expert=2", "expert=3,placement=strided",
                           "patches=3", "pipefusion=2,patches=3"})
    expect_equal("dit_moe_flash", plan);
}

TEST(RunsOnGpu, StaleExpertsAreTheCpus) {
  for (const char* plan :
       {"expert=2,schedule=displaced", "expert=2,schedule=interweaved",
        "expert=2,schedule=staggered-batch", "expert=2,schedule=displaced,conditional=low"})
    expect_equal("dit_moe_flash", plan);
}

// The latent is looked at every fourth step alone; the part is found by running a step again.
TEST(RunsOnGpu, ThePartThatMakesNoNumbersIsNamed) {
  const Scratch scratch;
  const std::string from = std::string(TESSERA_TEST_DATA) + "/moe/dit_moe_flash/model";
  std::filesystem::create_directories(scratch / "model");
  std::filesystem::copy(from + "/config.json", scratch / "model/config.json");
  const load::SafetensorsFile file(from + "/model.safetensors");
  std::map<std::string, tensor::Tensor> tensors;
  for (const auto& [name, entry] : file.entries()) tensors[name] = file.get(name);
  auto& bias = tensors.at("blocks.1.attn.out_proj.bias");
  std::vector<float> values = bias.to_floats();
  values[3] = std::numeric_limits<float>::quiet_NaN();
  bias = tensor::Tensor::from(std::span<const float>(values), bias.shape());
  load::write_safetensors(scratch / "model/model.safetensors", tensors);
  GenerateRequest request;
  request.classes = {"1"};
  request.steps = 6;
  request.decode = false;
  const Gpu gpu;
  try {
    Model::open(scratch / "model", options("cuda", "")).generate(request);
    FAIL() << "NaN passed";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::model);
    EXPECT_NE(std::string(e.what()).find("'block.1' of the model"), std::string::npos) << e.what();
  }
}

TEST(RunsOnGpu, ARunRepeatsItsBits) {
  const Gpu gpu;
  for (const char* plan : {"", "expert=2"}) {
    const RunOptions run = options("cuda", plan);
    EXPECT_EQ(generated("dit_moe_flash", run).latents, generated("dit_moe_flash", run).latents)
        << plan;
  }
}

#if !defined(TESSERA_ON_GPU)
TEST(RunsOnGpu, StepsAreRecordedAndReplayedWhereNothingElseTakesPart) {
  const auto replays = [](const std::string& plan, int64_t steps) {
    const Gpu gpu;
    GenerateRequest request;
    request.classes = {"1"};
    request.steps = static_cast<int>(steps);
    request.decode = false;
    Model::open(std::string(TESSERA_TEST_DATA) + "/moe/dit_moe_flash/model", options("cuda", plan))
        .generate(request);
    return gpu.replays();
  };
  EXPECT_EQ(replays("", 6), 5);
  EXPECT_EQ(replays("", 2), 0);
  EXPECT_EQ(replays("expert=2", 6), 0);
}

TEST(RunsOnGpu, WeightsAreUploadedOnce) {
  const Gpu gpu;
  const RunOptions run = options("cuda", "");
  GenerateRequest request;
  request.classes = {"1"};
  request.steps = 1;
  request.decode = false;
  RunOptions keeping = run;
  keeping.keep_parts = true;
  Model one = Model::open(std::string(TESSERA_TEST_DATA) + "/moe/dit_moe_flash/model", keeping);
  one.generate(request);
  const int64_t first = gpu.uploads();
  one.generate(request);
  EXPECT_LT(gpu.uploads() - first, first / 2);
}

TEST(RunsOnGpu, OfAStepTheHostReadsNothingAndRoutingsAtTheEnd) {
  const auto others = [](int steps) {
    const Gpu gpu;
    GenerateRequest request;
    request.classes = {"1"};
    request.steps = steps;
    request.guidance = 1.5f;
    request.decode = false;
    const auto run = Model::open(std::string(TESSERA_TEST_DATA) + "/moe/dit_moe_flash/model",
                                 options("cuda", ""))
                         .generate(request);
    EXPECT_GT(run.report.layers.size(), 0u);
    const int looked_at =
        (steps + 3) / 4;  // whether a latent is all numbers: each fourth, the last
    return gpu.downloads() - looked_at;
  };
  EXPECT_EQ(others(6), others(2));
}

TEST(RunsOnGpu, TooLittleMemoryIsSaidBeforeTheRun) {
  const Gpu gpu(1 << 16);
  try {
    generated("dit_moe_flash", options("cuda", ""));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::memory);
    EXPECT_NE(std::string(error.what()).find("the GPU has"), std::string::npos) << error.what();
  }
}
#endif

TEST(RunsOnGpu, BlocksAreStreamedIntoABudget) {
  const GenerateResult here = generated("dit_moe_flash", options("cpu", ""));
  const Gpu gpu;
  RunOptions run = options("cuda", "");
  run.memory_budget = here.report.peak_bytes.total * 9 / 10;
  const GenerateResult there = generated("dit_moe_flash", run);
  const std::vector<std::string>& notes = there.report.notes;
  EXPECT_TRUE(std::any_of(notes.begin(), notes.end(), [](const std::string& note) {
    return note.starts_with("streams the transformer");
  })) << testing::PrintToString(notes);
  expect_same(there.latents, here.latents, tolerance_of(Precision::bf16));
}

TEST(RunsOnGpu, LanguageModelsCompleteAsOnTheCpu) {
  for (const char* name : {"llada_moe", "llada2"})
    for (const char* plan : {"", "tensor=2", "expert=2"}) {
      const golden::LladaCase golden(name);
      const auto run = [&](const char* device) {
        CompleteRequest q;
        q.prompt_ids = {{5, 17, 3, 8}, {4, 4, 2}};
        q.max_tokens = 16;
        q.block = 8;
        q.select = *plan ? "vanilla" : "des-vote:0.5";
        q.stop_at_eos = StopAtEos::none;
        const RunOptions how = options(device, plan, bitwise() ? Precision::bf16 : Precision::f32);
        const auto made = Model::open(golden.folder + "/model", how).complete(q);
        return std::pair{made.completions[0].ids, made.completions[1].ids};
      };
      const auto want = run("cpu");
      const Gpu gpu;
      EXPECT_EQ(run("cuda"), want) << name << " " << plan;
    }
}

}  // namespace
}  // namespace tessera::device

#include <cstring>

#include "runtime/model_state.h"
#include "test_paths.h"
#include "whole/small_video.h"

namespace tessera {
namespace {

using golden::Scratch;
using load::SafetensorsFile;
using tensor::Tensor;

const std::string kData = TESSERA_TEST_DATA "/moe/";

struct Case {
  const char *name, *prefix, *scheduler;
  int steps;
  float guidance;
  std::vector<std::string> classes;
};

GenerateRequest request_of(const Case& c, const SafetensorsFile& io, const Scratch& scratch) {
  std::map<std::string, Tensor> start{{"latents", io.get(std::string(c.prefix) + "start")}};
  if (std::string(c.scheduler) == "ddpm") {
    const Tensor noise = io.get(std::string(c.prefix) + "noise");
    for (int i = 0; i < c.steps; ++i)
      start["noise." + std::to_string(i)] =
          noise.slice(0, i, i + 1).contiguous().reshape(start["latents"].shape());
  }
  load::write_safetensors(scratch / "start.safetensors", start);
  GenerateRequest request;
  request.classes = c.classes;
  request.steps = c.steps;
  request.guidance = c.guidance;
  request.scheduler = parse_scheduler(c.scheduler);
  request.decode = false;
  request.initial_latents = scratch / "start.safetensors";
  request.save_latents = scratch / "end.safetensors";
  request.trace = scratch / "trace.safetensors";
  return request;
}

class DitMoeSampling : public testing::TestWithParam<Case> {};

TEST_P(DitMoeSampling, EveryStepIsTheReferencesInF32) {
  const Case& c = GetParam();
  const Scratch scratch;
  const SafetensorsFile io(kData + c.name + "/io.safetensors");
  Model model = Model::open(kData + c.name + "/model", golden::options(Precision::f32));
  const GenerateRequest request = request_of(c, io, scratch);
  model.generate(request);
  const Tensor expected = io.get(std::string(c.prefix) + "latents");
  const SafetensorsFile trace(request.trace);
  for (int64_t s = 0; s < c.steps; ++s)
    EXPECT_LT(golden::max_error(trace.get("latents." + std::to_string(s + 1)).to_floats(),
                                golden::row(expected, s)),
              1e-3)
        << "after step " << s;
  const SafetensorsFile end(request.save_latents);
  EXPECT_LT(golden::max_error(end.get("latents").to_floats(), golden::row(expected, c.steps - 1)),
            1e-3);
}

TEST_P(DitMoeSampling, ThreadsDoNotChangeABit) {
  const Case& c = GetParam();
  std::vector<float> first;
  for (int threads : {1, 2, 3}) {
    const Scratch scratch;
    const SafetensorsFile io(kData + c.name + "/io.safetensors");
    Model model = Model::open(kData + c.name + "/model", golden::options(Precision::bf16, threads));
    const GenerateRequest request = request_of(c, io, scratch);
    model.generate(request);
    const auto latents = SafetensorsFile(request.save_latents).get("latents").to_floats();
    if (first.empty()) first = latents;
    EXPECT_EQ(latents, first) << threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Golden, DitMoeSampling,
    testing::Values(Case{"dit_moe_flash", "rf.10.", "auto", 10, 1.5f, {"1", "3"}},
                    Case{"dit_moe_flash", "rf.4.", "rectified-flow", 4, 4.0f, {"8", "4"}},
                    Case{"dit_moe_timm", "rf.4.", "rectified-flow", 4, 1.5f, {"8", "0"}},
                    Case{"dit_moe_timm", "ddpm.4.", "ddpm", 4, 1.5f, {"1", "2"}}));

TEST(Generate, GuidesOnlyTheShareOfTimeThatIsAsked) {
  Model model = Model::open(TESSERA_MODELS_DIR "/shapes", golden::options(Precision::f32));
  const auto latents = [&](float guidance, float start, float until) {
    GenerateRequest request;
    request.classes = {"1"};
    request.steps = 4;
    request.width = request.height = 32;
    request.decode = false;
    request.guidance = guidance;
    request.guidance_start = start;
    request.cfg_truncation = until;
    return model.generate(request).latents;
  };
  const auto guided = latents(3, 0, 1), unguided = latents(1, 0, 1);
  EXPECT_NE(guided, unguided);
  EXPECT_EQ(latents(3, 1, 1), unguided);
  EXPECT_EQ(latents(3, 0.6F, 0.4F), unguided);
  EXPECT_NE(latents(3, 0.5F, 1), guided);
  EXPECT_NE(latents(3, 0.5F, 1), latents(3, 0, 0.5F));
}

std::string refusal(GenerateRequest request, ErrorCode code) {
  Model model = Model::open(kData + "dit_moe_flash/model", golden::options(Precision::f32));
  try {
    model.generate(request);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  return "was accepted";
}

GenerateRequest latents_only() {
  GenerateRequest request;
  request.classes = {"1"};
  request.decode = false;
  return request;
}

TEST(Generate, RefusesWhatCannotRunWithOneClearLine) {
  GenerateRequest r = latents_only();
  r.steps = 0;
  EXPECT_NE(refusal(r, ErrorCode::usage).find("`steps` 0"), std::string::npos);
  r = latents_only();
  r.classes = {"10"};
  EXPECT_NE(refusal(r, ErrorCode::usage).find("classes 0 to 9"), std::string::npos);
  r.classes = {"red circle"};
  EXPECT_NE(refusal(r, ErrorCode::usage).find("red circle"), std::string::npos);
  r = latents_only();
  r.width = 100;
  EXPECT_NE(refusal(r, ErrorCode::usage).find("multiple of 16"), std::string::npos);
  r = latents_only();
  r.width = r.height = 1 << 20;
  r.count = 1000;
  EXPECT_NE(refusal(r, ErrorCode::memory).find("tokens, too many for any machine"),
            std::string::npos);
  r = latents_only();
  r.decode = true;
  EXPECT_NE(refusal(r, ErrorCode::model).find("no VAE"), std::string::npos);
}

TEST(Generate, TheSameSeedGivesTheSameLatents) {
  std::vector<std::vector<float>> runs;
  for (uint64_t seed : {5u, 5u, 6u}) {
    const Scratch scratch;
    GenerateRequest r = latents_only();
    r.steps = 2;
    r.seed = seed;
    r.save_latents = scratch / "end.safetensors";
    Model model = Model::open(kData + "dit_moe_flash/model", golden::options(Precision::bf16));
    const GenerateResult result = model.generate(r);
    EXPECT_EQ(result.report.forwards, 2);
    EXPECT_GT(result.report.flops, 0);
    EXPECT_EQ(result.report.layers.size(), 3u);
    runs.push_back(SafetensorsFile(r.save_latents).get("latents").to_floats());
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_NE(runs[0], runs[2]);
}

TEST(Generate, InitialLatentsMayComeFromMemory) {
  const Model model = Model::open(kData + "dit_moe_flash/model", golden::options(Precision::f32));
  GenerateRequest r = latents_only();
  r.steps = 2;
  const GenerateResult drawn = model.generate(r);
  const std::vector<int64_t>& shape = drawn.latents_shape;
  ASSERT_EQ(shape.size(), 4u);
  EXPECT_EQ(shape[0] * shape[1] * shape[2] * shape[3], int64_t(drawn.latents.size()));
  const Scratch scratch;
  const auto given = tensor::Tensor::from(std::span<const float>(drawn.latents),
                                          tensor::Shape(std::span<const int64_t>(shape)));
  load::write_safetensors(scratch / "start.safetensors", {{"latents", given}});
  GenerateRequest memory = r, file = r;
  memory.initial_tensors["latents"] = {ElementType::f32, shape, drawn.latents.data()};
  file.initial_latents = scratch / "start.safetensors";
  EXPECT_EQ(model.generate(memory).latents, model.generate(file).latents);
  memory.initial_tensors["latents"].shape.back() += 1;
  memory.initial_tensors["latents"].data = nullptr;
  EXPECT_THROW(model.generate(memory), Error);
}

TEST(Generate, ASeedForEachImageDrawsItAsAlone) {
  const std::string folder = kData + "dit_moe_timm/model";
  RunOptions options = golden::options(Precision::f32);
  GenerateRequest both;
  both.classes = {"1", "2"};
  both.steps = 3;
  both.scheduler = SchedulerName::ddpm;  // draws in every step
  both.decode = false;
  both.seeds = {7, 9};
  std::vector<float> alone;
  for (size_t i = 0; i < 2; ++i) {
    GenerateRequest one = both;
    one.classes = {both.classes[i]};
    one.seeds.clear();
    one.seed = both.seeds[i];
    const std::vector<float> latents = Model::open(folder, options).generate(one).latents;
    alone.insert(alone.end(), latents.begin(), latents.end());
  }
  for (const char* plan : {"", "data=2"}) {
    options.plan = parse_plan(plan);
    EXPECT_EQ(Model::open(folder, options).generate(both).latents, alone) << plan;
  }
  both.seeds.pop_back();
  EXPECT_THROW(Model::open(folder, options).generate(both), Error);
}

TEST(Generate, ProgressHasTheLatentsAndTheTimestepOfItsStep) {
  for (const char* plan : {"", "ulysses=2"}) {
    RunOptions options = golden::options(Precision::bf16);
    options.plan = parse_plan(plan);
    const Model model = Model::open("shapes", options);
    GenerateRequest request;
    request.classes = {"1"};
    request.steps = 3;
    request.decode = false;
    std::vector<TensorData> seen;
    std::vector<float> times;
    Progress kept;
    RunControl control;
    control.on_progress = [&](const Progress& p) {
      if (p.phase != Phase::denoise) return;
      seen.push_back(p.latents());
      times.push_back(p.timestep);
      kept = p;
    };
    const GenerateResult result = model.generate(request, control);
    ASSERT_EQ(seen.size(), 4u);
    EXPECT_EQ(seen[3].shape, result.latents_shape);
    EXPECT_EQ(std::memcmp(seen[3].bytes.data(), result.latents.data(), seen[3].bytes.size()), 0);
    EXPECT_NE(seen[2].bytes, seen[3].bytes);
    EXPECT_EQ(times[0], 0);
    EXPECT_GT(times[1], times[2]);
    EXPECT_GT(times[2], times[3]);
    EXPECT_THROW(kept.latents(), Error) << "the step is over";
  }
}

TEST(Generate, ReportsTheWeightsThatItHoldsWhoeverReadThem) {
  GenerateRequest request;
  request.classes = {"1"};
  request.steps = 1;
  for (const char* plan : {"", "expert=2"}) {
    RunOptions options = golden::options(Precision::bf16);
    options.plan = parse_plan(plan);
    options.keep_parts = true;
    const Model first = Model::open("shapes", options), second = Model::open("shapes", options);
    const int64_t alone = first.generate(request).report.peak_bytes.weights;
    // Packing the kept VAE takes temporary memory only once.
    const int64_t again = second.generate(request).report.peak_bytes.weights;
    EXPECT_LE(again, alone) << plan;
    EXPECT_GT(double(again), 0.95 * double(alone)) << plan;
    for (const Model* model : {&first, &second}) {
      const Report report = model->generate(request).report;
      EXPECT_EQ(report.peak_bytes.weights, again) << plan;
      for (const Report::Rank& rank : report.per_rank) EXPECT_GT(rank.peak_bytes.weights, 0);
    }
  }
}

TEST(Generate, ReportsTheWeightsThatAForwardRead) {
  const golden::Scratch scratch;
  const SafetensorsFile io(kData + "dit_moe_flash/io.safetensors");
  const Model model = Model::open(kData + "dit_moe_flash/model", golden::options(Precision::bf16));
  GenerateRequest request = latents_only();
  request.steps = 1;
  const int64_t alone = model.generate(request).report.peak_bytes.weights;
  std::map<std::string, Tensor> inputs;
  for (const std::string name : {"x", "t", "y"}) inputs[name] = io.get("forward.0." + name);
  load::write_safetensors(scratch / "in.safetensors", inputs);
  ForwardRequest forward;
  forward.inputs = scratch / "in.safetensors";
  model.forward(forward);
  EXPECT_EQ(model.generate(request).report.peak_bytes.weights, alone);
}

TEST(Generate, APlanOrABudgetThatCannotBeIsRefusedBeforeTextIsEncoded) {
  GenerateRequest request;
  request.prompts = {"waves"};
  request.width = request.height = 32;
  request.frames = 9;
  request.steps = 1;
  const auto refused = [&](const std::string& plan, int64_t budget) {
    RunOptions options = golden::options(Precision::bf16);
    options.plan = parse_plan(plan);
    options.memory_budget = budget;
    int encoded = 0;
    RunControl control;
    control.on_progress = [&](const Progress& p) { encoded += p.phase == Phase::encode; };
    try {
      Model::open(golden::kVideoModel, options).generate(request, control);
    } catch (const Error& e) {
      EXPECT_EQ(encoded, 0) << e.what();
      return std::string(e.what());
    }
    EXPECT_GT(encoded, 0);
    return std::string();
  };
  for (const char* runs : {"", "tensor=2", "distrifusion=2"}) EXPECT_EQ(refused(runs, 0), "");
  EXPECT_NE(refused("shards=1000", 0).find("a sample has"), std::string::npos);
  EXPECT_NE(refused("tensor=3", 0).find("tensor=3"), std::string::npos);
  EXPECT_NE(refused("schedule=interweaved", 0).find("the plan cannot run"), std::string::npos);
  EXPECT_NE(refused("", 400'000), "");
}

TEST(Generate, StopsWithinAStepAndLeavesNothing) {
  const Scratch scratch;
  std::stop_source source;
  RunControl control;
  control.stop = source.get_token();
  control.on_progress = [&](const Progress& p) {
    if (p.phase == Phase::denoise && p.step == 1) source.request_stop();
  };
  GenerateRequest r = latents_only();
  r.save_latents = scratch / "end.safetensors";
  Model model = Model::open(kData + "dit_moe_flash/model", golden::options(Precision::bf16));
  try {
    model.generate(r, control);
    FAIL() << "was not stopped";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::cancelled);
  }
  EXPECT_FALSE(std::filesystem::exists(r.save_latents));
}

TEST(Generate, LetsGoOfItsNetworkHoweverItEnds) {
  const int64_t before = runtime::weight_store().live();
  Model model = Model::open("shapes", {.threads = 1});
  GenerateRequest request;
  request.classes = {"1"};
  request.steps = 4;
  RunControl control;
  control.on_progress = [&](const Progress& p) {
    if (p.phase != Phase::denoise || p.step != 1) return;
    EXPECT_GT(runtime::weight_store().live(), before);
    throw Error(ErrorCode::usage, "enough");
  };
  EXPECT_THROW(model.generate(request, control), Error);
  EXPECT_EQ(runtime::weight_store().live(), before);
}

}  // namespace
}  // namespace tessera

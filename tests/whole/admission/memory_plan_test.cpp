#include "admission/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "diffusion/plan_job.h"
#include "nn/local_spatial.h"
#include "runtime/open_model.h"
#include "tensor/scope.h"
#include "test_paths.h"
#include "whole/pixart_text.h"

namespace tessera {
namespace {

const std::string kData = TESSERA_TEST_DATA "/diffusers/";

// A run of the PixArt of the tests from stored embeddings.
struct Trial {
  golden::Scratch scratch;
  GenerateRequest request;
  RunOptions options = golden::options(Precision::f32);
  std::vector<std::string> notes;

  Trial() {
    request.embeddings = golden::pixart_text(scratch);
    request.steps = 2;
    request.width = request.height = 64;
  }
  GenerateResult operator()() {
    notes.clear();
    RunControl control;
    control.on_note = [&](const std::string& note) { notes.push_back(note); };
    return Model::open(kData + "pixart_alpha/model", options).generate(request, control);
  }
  std::string refusal() {
    try {
      (*this)();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::memory) << e.what();
      return e.what();
    }
    return "nothing was refused";
  }
};

// The decoding of an image with a VAE, known only by its description.
struct Decoding {
  runtime::ModelState state;
  diffusion::Job job;

  Decoding(const base::Json& config, Precision precision, const nn::TokenLayout& layout) {
    state.options.precision = precision;
    state.folder.components.push_back({"vae", "diffusers", "AutoencoderKL", "nowhere", config});
    job.planned.layout = layout;
    job.planned.labels.resize(1);
  }
  diffusion::MemoryNeed need(int64_t pixels) const {
    std::optional<models::Tiling> tiles;
    if (pixels > 0) tiles = admission::vae_tiles(state, pixels);
    return admission::dry_run_decode(state, job, tiles);
  }
};

TEST(MemoryPlan, StreamsBlocksWithinTheBudgetAndComputesTheSameLatents) {
  Trial run;
  run.request.decode = false;
  const auto whole = run();
  EXPECT_TRUE(run.notes.empty());
  const int64_t peak = whole.report.peak_bytes.total;
  run.options.memory_budget = peak * 9 / 10;
  const auto streamed = run();
  ASSERT_EQ(run.notes.size(), 1u);
  EXPECT_NE(run.notes[0].find("streams the transformer"), std::string::npos) << run.notes[0];
  EXPECT_EQ(streamed.latents, whole.latents);
  EXPECT_LE(streamed.report.peak_bytes.total, run.options.memory_budget);
  EXPECT_EQ(streamed.report.notes, run.notes);
  run.options.memory_budget = peak * 21 / 20;  // predicted from the tokens of the masks
  EXPECT_EQ(run().latents, whole.latents);
  EXPECT_TRUE(run.notes.empty());
}

TEST(MemoryPlan, TilesTheImagesThatDoNotFit) {
  Trial run;
  run.request.width = run.request.height = 256;
  run.request.steps = 1;
  run.request.guidance = 1;
  const base::Json config = base::read_json(kData + "pixart_alpha/model/vae/config.json");
  nn::TokenLayout layout{.channels = 4, .size = {1, 32, 32}, .patch = {1, 2, 2}};
  const Decoding decoding(config, Precision::f32, layout);
  const auto need = decoding.need(0), tiled = decoding.need(64);
  EXPECT_LT(2 * tiled.activations, need.activations);
  EXPECT_EQ(tiled.weights, need.weights);
  run.options.memory_budget = need.peak - 1;
  const auto result = run();
  ASSERT_GE(run.notes.size(), 1u);
  EXPECT_NE(run.notes.back().find("in tiles with blended seams"), std::string::npos)
      << run.notes.back();
  EXPECT_LE(result.report.peak_bytes.total, run.options.memory_budget);
  run.request.vae_tiling = VaeTiling::off;
  EXPECT_NE(run.refusal().find("`vae_tiling`"), std::string::npos);
}

// The decoder of Stable Diffusion 3 and FLUX.
TEST(MemoryPlan, TilesBoundTheMemoryOfALargeImage) {
  const base::Json config = base::Json::parse(
      R"({"latent_channels": 16, "block_out_channels": [128, 256, 512, 512], "layers_per_block": 2,
          "sample_size": 1024, "use_post_quant_conv": false})");
  const nn::TokenLayout large{.channels = 16, .size = {1, 128, 128}, .patch = {1, 2, 2}};
  const nn::TokenLayout huge{.channels = 16, .size = {1, 256, 256}, .patch = {1, 2, 2}};
  const auto need = [&](const nn::TokenLayout& layout, int64_t pixels) {
    return Decoding(config, Precision::bf16, layout).need(pixels).activations;
  };
  EXPECT_LT(need(large, 512), 0.35 * double(need(large, 0)));
  EXPECT_LT(need(large, 256), 0.15 * double(need(large, 0)));
  // A larger image adds only its own size.
  EXPECT_LT(need(huge, 512) - need(large, 512), 2 * 3 * 4 * int64_t{2048} * 2048);
}

TEST(MemoryPlan, FiltersInInt8CountAsInARun) {
  int64_t bf16 = 0;
  for (const char* rules : {"", "vae=int8"}) {
    RunOptions options = golden::options(Precision::bf16);
    options.quantise_rules = rules;
    runtime::ModelState state;
    runtime::open_model(TESSERA_MODELS_DIR "/scenes", options, state);
    diffusion::Job job;
    job.planned.layout = {.channels = 4, .size = {1, 8, 8}, .patch = {1, 2, 2}};
    job.planned.labels.resize(1);
    const int64_t weights = admission::dry_run_decode(state, job, std::nullopt).weights;
    tensor::Scope scope = tensor::current_scope();
    scope.memory = std::make_shared<tensor::MemoryTracker>();
    const tensor::BindScope bind(scope);
    nn::LocalSpatial spatial;
    (void)state.load_vae()->decode(tensor::Tensor::zeros({1, 4, 8, 8}, tensor::DType::f32),
                                   spatial);
    EXPECT_NEAR(double(scope.memory->peak(tensor::MemoryClass::weights)), double(weights), 100)
        << rules;
    if (bf16 == 0) bf16 = weights;
    EXPECT_EQ(weights < bf16, *rules != 0);
  }
}

TEST(MemoryPlan, OneTileIsTheImageBitByBit) {
  Trial run;
  const auto whole = run();
  run.request.vae_tiling = VaeTiling::on;  // the configuration says 64 pixels
  EXPECT_EQ(run().images[0].rgb, whole.images[0].rgb);
  EXPECT_TRUE(std::ranges::any_of(run.notes, [](const std::string& note) {
    return note.find("in one tile") != std::string::npos;
  }));
  run.request.vae_tile = 4096;
  EXPECT_EQ(run().images[0].rgb, whole.images[0].rgb);
  run.request.vae_tile = 32;
  EXPECT_THROW(run(), Error);
}

TEST(MemoryPlan, PartsAreReleasedAfterUse) {
  Trial run;
  const auto result = run();
  const base::Json config = base::read_json(kData + "pixart_alpha/model/vae/config.json");
  const auto& peaks = result.report.peak_bytes;
  run.request.decode = false;
  const int64_t denoise = run().report.peak_bytes.total;
  const auto decode =
      Decoding(config, Precision::f32, {.channels = 4, .size = {1, 8, 8}, .patch = {1, 2, 2}})
          .need(0);
  EXPECT_LE(double(peaks.total), 1.05 * double(std::max(denoise, decode.peak)));
}

// Texts stay in memory until the image is decoded.
TEST(MemoryPlan, InspectPredictsThePeakOfDecoding) {
  Trial run;
  run.request.width = run.request.height = 256;
  run.request.steps = 1;
  const auto peak = [&] {
    return Model::open(kData + "pixart_alpha/model", run.options)
        .inspect(run.request)
        .memory.at("peak");
  };
  const int64_t whole = peak();
  const int64_t counted = run().report.peak_bytes.total;
  EXPECT_GE(whole, counted);
  EXPECT_LE(double(whole), 1.02 * double(counted));
  run.request.decode = false;
  EXPECT_LT(peak(), whole);
}

// The results of a sequence of requests stay until its end.
TEST(MemoryPlan, ResultsOfASequenceCount) {
  runtime::ModelState state;
  RunOptions options = golden::options(Precision::f32);
  options.plan = parse_plan("vae=+1");
  runtime::open_model("shapes", options, state);
  GenerateRequest request;
  request.classes = {"1"};
  request.count = 3;
  request.steps = 1;
  request.width = request.height = 64;
  diffusion::Job job = diffusion::plan_job(state, request);
  const admission::MemoryFit fit = admission::fit_memory(state, request, job);
  const int64_t image = 64 * 64 * 3 + 4 * 8 * 8 * 4;  // pixels, and a latent in f32
  EXPECT_EQ(fit.denoise.results, 3 * image);
  EXPECT_GT(fit.decode.weights, 0) << "what of the decoder may stay";
  const int64_t inputs = 1000, before = fit.denoise.process + inputs;
  for (const int others : {1, 4, 40}) {
    const std::vector<admission::MemoryFit> fits(static_cast<size_t>(others) + 1, fit);
    state.options.memory_budget = before + others * fit.denoise.results;
    EXPECT_NO_THROW(admission::require_overlap(state, fits, inputs)) << others;
    --state.options.memory_budget;
    EXPECT_THROW(admission::require_overlap(state, fits, inputs), Error) << others;
  }
}

TEST(MemoryPlan, AmountsAreToldApart) {
  EXPECT_EQ(admission::amount(16.24e9), "16.2 GB");
  EXPECT_EQ(admission::amount(5.9e6), "5.9 MB");
  EXPECT_EQ(admission::amount(52'000), "52.0 KB");
  EXPECT_EQ(admission::amount(17), "17 bytes");
  EXPECT_EQ(admission::amount(5.93e6, 5.94e6), "5.93 MB");
  EXPECT_EQ(admission::amount(5.9e6, 7e6), "5.9 MB");
  EXPECT_EQ(admission::amount(5.9e6, 5.9e6), "5.9 MB");
  const admission::MemoryLimit room{5'900'000, "`memory_budget` allows", 5.9e6};
  const std::string said = admission::too_large("it", 5'900'001, 1000, room, "less");
  EXPECT_NE(said.find("it would need about 5.900001 MB (weights 1.0 KB"), std::string::npos)
      << said;
  EXPECT_NE(said.find("`memory_budget` allows 5.900000 MB: less"), std::string::npos) << said;
}

TEST(MemoryPlan, SaysWhatIsMissingWhenNothingHelps) {
  Trial run;
  run.options.memory_budget = 100'000;
  const std::string message = run.refusal();
  EXPECT_NE(message.find("would need"), std::string::npos) << message;
  EXPECT_NE(message.find("`memory_budget` allows 0.1 MB"), std::string::npos) << message;
}

TEST(MemoryPlan, ACheckRefusesWhatARunDoes) {
  RunOptions options;
  options.memory_budget = 2'000'000;
  const Model model = Model::open("shapes", options);
  const auto refused = [](const auto& ask) -> std::string {
    try {
      ask();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::memory) << e.what();
      return e.what();
    }
    return "";
  };
  GenerateRequest small;
  small.classes = {"red circle"};
  small.steps = 2;
  small.width = small.height = 64;
  GenerateRequest large = small;
  large.width = large.height = 0;
  large.count = 8;
  for (int i = 0; i < 3; ++i) {  // results that fit are remembered; other sizes do not replace them
    EXPECT_EQ(refused([&] { model.check(small); }), "");
    const std::string why = refused([&] { model.check(large); });
    EXPECT_NE(why.find("`memory_budget` allows 2.0 MB"), std::string::npos) << why;
    EXPECT_EQ(refused([&] { model.generate(large); }), why);
    EXPECT_EQ(model.generate(small).images.size(), 1u);
  }
}

TEST(MemoryPlan, TextEncodersCountToo) {
  RunOptions options = golden::options(Precision::bf16);
  options.memory_budget = 20'000;
  GenerateRequest request;
  request.prompts = {"waves"};
  request.width = request.height = 32;
  request.frames = 9;
  try {
    Model::open(kData + "cogvideox_2b/model", options).generate(request);
    FAIL() << "20 kB were enough";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::memory);
    EXPECT_NE(std::string(e.what()).find("text_encoder"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace tessera

// Memory of Z-Image-Turbo and FLUX.2-klein, of their encoder Qwen3, and of the families before
// them: as predicted, and within a budget.
#include <algorithm>
#include <numeric>

#include "admission/memory_plan.h"
#include "diffusion/plan_job.h"
#include "diffusion/text_encoders.h"
#include "models/registry.h"
#include "nn/latent_form.h"
#include "nn/local_spatial.h"
#include "runtime/open_model.h"
#include "runtime/sharded_blocks.h"
#include "test_paths.h"
#include "whole/golden.h"
#include "whole/small_video.h"
#include "whole/text_model.h"
#include "whole/text_pipeline.h"

namespace tessera {
namespace {

using tensor::Tensor;

std::string folder_of(const std::string& name) {
  return TESSERA_TEST_DATA "/diffusers/" + name + "/model";
}
const char* const kNames[] = {"z_image_turbo", "flux2_klein_base"};

GenerateRequest prompted(int64_t width = 64, int64_t height = 96) {
  GenerateRequest request;
  request.prompts = {"waves on a long beach"};
  request.text_tokens = 32;
  request.steps = 2;
  request.width = width;
  request.height = height;
  request.decode = false;
  return request;
}

RunOptions within(int64_t budget, Precision precision = Precision::bf16,
                  const std::string& plan = "") {
  RunOptions options = golden::options(precision);
  options.memory_budget = budget;
  options.plan = parse_plan(plan);
  return options;
}

void expect_predicted(const std::string& folder, const GenerateRequest& request,
                      const std::string& plan) {
  const std::string what = folder + " " + plan;
  const RunOptions options = within(0, Precision::bf16, plan);
  runtime::ModelState state;
  runtime::open_model(folder, options, state);
  diffusion::Job job = diffusion::plan_job(state, request);
  const auto predicted = admission::fit_memory(state, request, job).denoise.ranks;
  const Report report = Model::open(folder, options).generate(request).report;
  ASSERT_EQ(report.per_rank.size(), predicted.size()) << what;
  for (size_t r = 0; r < predicted.size(); ++r) {
    const MemoryPeaks& did = report.per_rank[r].peak_bytes;
    EXPECT_EQ(predicted[r].activations, did.activations) << what << ", rank " << r;
    EXPECT_EQ(predicted[r].kv, did.kv) << what << ", rank " << r;
    EXPECT_EQ(predicted[r].buffers, did.buffers) << what << ", rank " << r;
    EXPECT_EQ(predicted[r].total - predicted[r].weights, did.total - did.weights)
        << what << ", rank " << r;
  }
}

TEST(ImageModels, MemoryOfARunIsPredicted) {
  const auto pipelines = golden::text_pipelines();
  const golden::Scratch scratch;
  for (const char* plan : {"", "ulysses=2", "shards=2"}) {
    GenerateRequest full = prompted();  // Z-Image needs less for a shorter text
    for (int i = 0; i < 5; ++i) full.prompts[0] += " " + full.prompts[0];
    for (const char* name : kNames) expect_predicted(folder_of(name), full, plan);
    full.text_tokens = 0;
    for (const auto& [name, pipeline] : pipelines)
      if (name == "flux" || name == "hunyuan") expect_predicted(pipeline->path(), full, plan);
    GenerateRequest video = golden::small_video(scratch);
    video.decode = false;
    expect_predicted(golden::kVideoModel, video, plan);
  }
}

TEST(ImageModels, StreamWithinABudgetAndComputeTheSame) {
  for (const char* name : kNames) {
    const GenerateRequest request = prompted(32, 48);
    const GenerateResult whole = Model::open(folder_of(name), within(0)).generate(request);
    EXPECT_TRUE(whole.report.notes.empty()) << name;
    const int64_t peak = whole.report.peak_bytes.total;
    const GenerateResult streamed =
        Model::open(folder_of(name), within(peak * 9 / 10)).generate(request);
    ASSERT_EQ(streamed.report.notes.size(), 1u) << name;
    EXPECT_NE(streamed.report.notes[0].find("streams the transformer"), std::string::npos)
        << streamed.report.notes[0];
    EXPECT_EQ(streamed.latents, whole.latents) << name;
    EXPECT_LE(streamed.report.peak_bytes.total, peak * 9 / 10) << name;
    EXPECT_LT(streamed.report.per_rank[0].peak_bytes.weights,
              whole.report.per_rank[0].peak_bytes.weights)
        << name;
  }
}

// Only a single layer of Qwen3 is in memory at a time.
TEST(ImageModels, TheEncoderHoldsALayerAtATime) {
  for (const char* name : kNames) {
    runtime::ModelState state;
    runtime::open_model(folder_of(name), within(0), state);
    const auto meta = diffusion::meta_weights_of(state, "text_encoder");
    const auto encoder = diffusion::encoder_over(state, "text_encoder", meta);
    std::vector<int64_t> layers;
    for (int64_t i = 0; i < encoder->layers(); ++i)
      layers.push_back(runtime::BlockLayout(meta, [&](const nn::Weights& noted) {
                         encoder->ask(i, noted);
                       }).bytes());
    const int64_t all = std::accumulate(layers.begin(), layers.end(), int64_t{0}),
                  largest = *std::max_element(layers.begin(), layers.end());
    const Report report = Model::open(folder_of(name), within(0)).generate(prompted()).report;
    const int64_t held = report.per_rank.at(0).text_peak_bytes.weights;
    EXPECT_GE(held, largest) << name;
    EXPECT_LT(held, all) << name << ": layers of " << largest;
  }
}

// The text encoder alone, within less than its weights take.
TEST(ImageModels, TheEncoderRunsInLessThanItsWeights) {
  const golden::Scratch scratch;
  const std::vector<int32_t> ids{3, 7, 20, 5, 9, 11, 2, 1};
  load::write_safetensors(scratch / "in.safetensors",
                          {{"input_ids", Tensor::from(std::span<const int32_t>(ids), {1, 8})}});
  for (const char* name : kNames) {
    const std::string folder = folder_of(name);
    const auto run = [&](int64_t budget) {
      ForwardRequest request;
      request.component = ModelPart::text_encoder;
      request.inputs = scratch / "in.safetensors";
      request.outputs = scratch / "out.safetensors";
      Model::open(folder, within(budget)).forward(request);
      return load::SafetensorsFile(request.outputs).get("last_hidden_state").to_floats();
    };
    int64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder + "/text_encoder"))
      if (entry.path().extension() == ".safetensors") bytes += int64_t(entry.file_size());
    EXPECT_EQ(run(bytes * 3 / 4), run(0)) << name;
    EXPECT_NE(golden::error_of([&] { run(1000); }).find("would need"), std::string::npos) << name;
  }
}

// The latent of the family's VAE, [1, channels, lines, columns].
Tensor latent_of(const std::string& folder, const GenerateRequest& request,
                 const GenerateResult& made, const models::VaeDecoder& vae) {
  runtime::ModelState state;
  runtime::open_model(folder, within(0), state);
  const nn::TokenLayout layout = state.spec->layout(request.height / 8, request.width / 8, 0);
  tensor::Shape shape = nn::latent_shape(layout, state.spec->form, 1);
  const Tensor latent = Tensor::from(std::span<const float>(made.latents), shape);
  return vae.unscale(
      nn::from_tokens(nn::tokens_of_latent(latent, layout, state.spec->form), layout, false));
}

// Where only the first tile lies, the image is what the VAE makes of that part of the latent. The
// statistics of FLUX.2's VAE stand before the tiles.
TEST(ImageModels, TilesOfAnImageStandAtTheirPlaces) {
  for (const char* name : kNames) {
    const std::string folder = folder_of(name);
    runtime::ModelState state;
    runtime::open_model(folder, within(0, Precision::f32), state);
    const auto vae = state.load_vae();
    GenerateRequest request = prompted(160, 128);
    request.decode = true;
    const Model model = Model::open(folder, within(0, Precision::f32));
    const GenerateResult whole = model.generate(request);
    request.vae_tiling = VaeTiling::on;
    request.vae_tile = 4096;
    EXPECT_EQ(model.generate(request).images.at(0).rgb, whole.images.at(0).rgb) << name;
    request.vae_tile = 64;  // tiles begin every 48 pixels
    const GenerateResult tiled = model.generate(request);
    EXPECT_EQ(tiled.latents, whole.latents) << name;
    const Image& image = tiled.images.at(0);
    ASSERT_EQ(image.width, 160);
    ASSERT_EQ(image.height, 128);
    EXPECT_NE(image.rgb, whole.images.at(0).rgb) << name << ": tiles see less";
    const Tensor corner =
        latent_of(folder, request, whole, *vae).slice(2, 0, 8).slice(3, 0, 8).contiguous();
    nn::LocalSpatial spatial;
    const Tensor alone = vae->decode(corner, spatial);
    ASSERT_EQ(alone.shape(), (tensor::Shape{1, 3, 64, 64}));
    const std::vector<float> values = alone.to_floats();
    for (int64_t c = 0; c < 3; ++c)
      for (int64_t y = 0; y < 48; ++y)
        for (int64_t x = 0; x < 48; ++x) {
          const float v = values[static_cast<size_t>((c * 64 + y) * 64 + x)];
          const float want = std::clamp(v * 0.5f + 0.5f, 0.0f, 1.0f) * 255;
          ASSERT_NEAR(image.rgb[static_cast<size_t>((y * 160 + x) * 3 + c)], want, 1.01)
              << name << ' ' << c << ' ' << y << ' ' << x;
        }
  }
}

// An image that does not fit is decoded in tiles, within the budget.
TEST(ImageModels, AnImageThatDoesNotFitIsTiled) {
  for (const char* name : kNames) {
    GenerateRequest request = prompted(256, 256);
    request.steps = 1;
    const auto run = [&](int64_t budget, bool decode) {
      request.decode = decode;
      return Model::open(folder_of(name), within(budget)).generate(request);
    };
    const int64_t latents = run(0, false).report.peak_bytes.total,
                  whole = run(0, true).report.peak_bytes.total;
    ASSERT_GT(whole, latents) << name << ": its decoding takes most";
    const GenerateResult tiled = run(whole - 1, true);
    ASSERT_GE(tiled.report.notes.size(), 1u) << name;
    EXPECT_NE(tiled.report.notes.back().find("in tiles with blended seams"), std::string::npos)
        << tiled.report.notes.back();
    EXPECT_LT(tiled.report.peak_bytes.total, whole) << name;
    EXPECT_EQ(tiled.images.size(), 1u);
  }
}

}  // namespace
}  // namespace tessera

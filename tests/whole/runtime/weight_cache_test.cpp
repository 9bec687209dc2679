#include "runtime/weight_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "diffusion/decode.h"
#include "load/held_weights.h"
#include "pipeline/generate.h"
#include "runtime/open_model.h"
#include "tensor/scope.h"
#include "whole/golden.h"
#include "whole/small_video.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;
using tensor::MemoryClass;

// A copy of a small video model with weights to damage.
struct Trial {
  golden::Scratch scratch;
  std::string folder = scratch / "model";
  RunOptions options = golden::options(Precision::bf16);
  GenerateRequest request;

  Trial() {
    std::filesystem::copy(golden::kVideoModel, folder, std::filesystem::copy_options::recursive);
    options.keep_parts = true;
    request.prompts = {"waves"};
    request.width = request.height = 32;
    request.frames = 9;
    request.steps = 1;
  }
  // Overwrites all files of a part: zeros after the header; unless `seen`, times of files do not
  // change.
  void lose(const std::string& part, bool seen = false) const {
    for (const auto& entry : std::filesystem::directory_iterator(folder + "/" + part)) {
      if (entry.path().extension() != ".safetensors") continue;
      const auto written = std::filesystem::last_write_time(entry.path());
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      uint64_t header = 0;
      file.read(reinterpret_cast<char*>(&header), sizeof header);
      const std::vector<char> zeros(std::filesystem::file_size(entry.path()) - header - 8, 0);
      file.seekp(int64_t(header) + 8);
      file.write(zeros.data(), std::ssize(zeros));
      file.close();
      ASSERT_TRUE(file) << entry.path();
      std::filesystem::last_write_time(entry.path(), seen ? written + 2s : written);
    }
  }
};

std::vector<uint8_t> pixels(const GenerateResult& result) {
  std::vector<uint8_t> all;
  for (const Image& image : result.images)
    all.insert(all.end(), image.rgb.begin(), image.rgb.end());
  return all;
}

TEST(WeightCache, AreNeitherReadNorPackedAgain) {
  const Trial trial;
  const int64_t before = runtime::weight_store().live();
  std::vector<uint8_t> first, other;
  {
    const Model model = Model::open(trial.folder, trial.options);
    first = pixels(model.generate(trial.request));
    EXPECT_GT(runtime::weight_store().live(), before);
    trial.lose("text_encoder");
    trial.lose("vae");
    EXPECT_EQ(pixels(model.generate(trial.request)), first);
  }
  EXPECT_EQ(runtime::weight_store().live(), before) << "nothing outlives the model";
  other = pixels(Model::open(trial.folder, trial.options).generate(trial.request));
  EXPECT_NE(other, first) << "the weights that were read anew are others";
}

TEST(WeightCache, AreReadAnewWhereTheirFilesChanged) {
  const Trial trial;
  const Model model = Model::open(trial.folder, trial.options);
  const std::vector<uint8_t> first = pixels(model.generate(trial.request));
  trial.lose("vae", true);
  EXPECT_NE(pixels(model.generate(trial.request)), first);
}

// Packed again from the files, compared with the reported bytes: for the VAE the peak of its
// weights.
TEST(WeightCache, AreAsLargeAsIsSaid) {
  const Trial trial;
  runtime::ModelState state;
  runtime::open_model(trial.folder, trial.options, state);
  pipeline::generate(state, trial.request, {});
  const int64_t of_text = state.loaded.kept.bytes_with({{"vae", 0}}),
                of_vae = state.loaded.kept.bytes_with({{"text_encoder", 0}});
  tensor::Scope scope;
  scope.memory = std::make_shared<tensor::MemoryTracker>();
  const tensor::BindScope bind(scope);
  const auto text = std::make_shared<const load::HeldWeights>(state.weights_of("text_encoder"));
  state.load_text_encoder("text_encoder", text)->encode({{0}, {1}, 1});
  const int64_t text_bytes = scope.memory->current(MemoryClass::weights);
  EXPECT_EQ(of_text, text_bytes);
  const auto vae = state.load_vae();
  diffusion::derive_filters(state, *vae, state.geometry().channels_in);
  const int64_t vae_bytes = scope.memory->current(MemoryClass::weights) - text_bytes;
  EXPECT_GE(of_vae, vae_bytes);
  EXPECT_LT(double(of_vae), 1.1 * double(vae_bytes));
  state.loaded.kept.release();
  EXPECT_EQ(state.loaded.kept.bytes(), 0);
}

// Requests in order and several at once; some are cancelled in progress.
TEST(WeightCache, AnswerRequestsAtOnceAsAlone) {
  Trial trial;
  const std::vector<uint8_t> alone =
      pixels(Model::open(trial.folder, trial.options).generate(trial.request));
  const Model model = Model::open(trial.folder, trial.options);
  std::atomic<int> same{0}, stopped{0};
  std::vector<std::thread> threads;
  for (int which = 0; which < 3; ++which)
    threads.emplace_back([&, which] {
      for (int time = 0; time < 6; ++time) {
        const Phase last[] = {Phase::encode, Phase::load, Phase::decode};
        std::stop_source stop;
        RunControl control;
        control.stop = stop.get_token();
        control.on_progress = [&](const Progress& progress) {
          if (which == 2 && progress.phase == last[time % 3]) stop.request_stop();
        };
        try {
          same += pixels(model.generate(trial.request, control)) == alone;
        } catch (const Error& error) {
          stopped += error.code() == ErrorCode::cancelled;
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, 12);
  EXPECT_EQ(stopped, 6);
  EXPECT_EQ(pixels(model.generate(trial.request)), alone);
}

TEST(WeightCache, CountInEveryRunAndKeepToTheBudget) {
  Trial trial;
  const auto run = [&](const Model& model) { return model.generate(trial.request).report; };
  trial.options.keep_parts = false;
  const int64_t least = run(Model::open(trial.folder, trial.options)).peak_bytes.total;
  trial.options.keep_parts = true;
  trial.options.memory_budget = 2 * least;
  const Model roomy = Model::open(trial.folder, trial.options);
  for (int i = 0; i < 3; ++i) {
    const Report report = run(roomy);
    EXPECT_LE(report.peak_bytes.total, trial.options.memory_budget);
    EXPECT_GT(report.peak_bytes.total, least) << "what is kept counts";
    EXPECT_EQ(report.notes,
              (std::vector<std::string>{"1 step is few for this model, which usually takes 50"}))
        << "nothing is said of kept parts";
  }
}

TEST(WeightCache, StayWithRanksThatDecodeApart) {
  Trial trial;
  trial.options.plan = parse_plan("vae=+1");
  const Model model = Model::open(trial.folder, trial.options);
  const std::vector<uint8_t> first = pixels(model.generate(trial.request));
  trial.lose("text_encoder");
  trial.lose("vae");
  EXPECT_EQ(pixels(model.generate(trial.request)), first);
}

TEST(WeightCache, GoWhereARunNeedsTheirMemory) {
  Trial trial;
  trial.options.keep_parts = false;
  const GenerateResult plain = Model::open(trial.folder, trial.options).generate(trial.request);
  trial.options.keep_parts = true;
  runtime::ModelState state;
  runtime::open_model(trial.folder, trial.options, state);
  const auto run = [&] { return pipeline::generate(state, trial.request, {}); };
  const int64_t all = run().report.peak_bytes.total, kept = state.loaded.kept.bytes();
  EXPECT_GT(kept, 0);
  for (const double share : {2.0, 0.93, 2.0}) {
    state.options.memory_budget = int64_t(double(all) * share);
    for (int i = 0; i < 2; ++i) {
      const GenerateResult result = run();
      EXPECT_EQ(result.latents, plain.latents) << share;
      EXPECT_LE(result.report.peak_bytes.total, state.options.memory_budget) << share;
      EXPECT_EQ(state.loaded.kept.bytes() == kept, share > 1) << share;
    }
  }
}

TEST(WeightCache, OfOneNameReplaceEachOther) {
  runtime::WeightCache kept;
  EXPECT_EQ(kept.bytes(), 0);
  kept.keep("vae", nullptr, 5);
  kept.keep("vae", nullptr, 7);
  kept.keep("text_encoder", nullptr, 2);
  EXPECT_EQ(kept.bytes(), 9);
  EXPECT_EQ(kept.bytes_with({{"vae", 10}, {"text_encoder_2", 1}}), 13);
  kept.release();
  EXPECT_EQ(kept.bytes(), 0);
}

}  // namespace
}  // namespace tessera

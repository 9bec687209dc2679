#include "diffusion/sharded_text.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <mutex>
#include <numeric>

#include "admission/memory_plan.h"
#include "base/fail.h"
#include "cluster/agree.h"
#include "cluster/on_processes.h"
#include "comm/collectives.h"
#include "diffusion/broadcast_conditioning.h"
#include "diffusion/encode_text.h"
#include "diffusion/plan_job.h"
#include "diffusion/text_encoders.h"
#include "pipeline/generate.h"
#include "runtime/open_model.h"
#include "runtime/sharded_blocks.h"
#include "whole/small_video.h"
#include "whole/text_pipeline.h"

// Text encoders under shard=N: bits equal to a single rank's, the memory and traffic of each rank,
// and their end.
namespace tessera::pipeline {
namespace {

using tensor::Tensor;

RunOptions asked_of(const std::string& plan, const Processes* processes = nullptr,
                    Precision precision = Precision::bf16) {
  RunOptions options = golden::options(precision);
  options.plan = parse_plan(plan);
  options.processes = processes;
  return options;
}

// Two prompts with different lengths, the second empty, and a negative prompt under guidance.
GenerateRequest prompted(const std::string& name, bool guided = true) {
  GenerateRequest request;
  request.prompts = {"waves on a long beach", ""};
  if (guided) request.negative_prompt = "fog";
  request.guidance = guided ? 3.f : 1.f;
  if (name == "flux" && guided) request.true_guidance = 2;
  request.steps = 2;
  request.decode = false;
  if (name != "sd3") request.width = request.height = 64;
  if (name == "video") request.width = request.height = 32, request.frames = 5;
  return request;
}

/// Pipelines by their names.
const std::vector<std::pair<std::string, std::string>>& models() {
  static const auto made = golden::text_pipelines();
  static const auto all = [] {
    std::vector<std::pair<std::string, std::string>> paths{{"video", golden::kVideoModel}};
    for (const auto& [name, pipeline] : made) paths.emplace_back(name, pipeline->path());
    return paths;
  }();
  return all;
}

std::string path_of(const std::string& name) {
  for (const auto& [known, path] : models())
    if (known == name) return path;
  throw std::out_of_range(name);
}

std::vector<float> latents(const std::string& path, const RunOptions& options,
                           const GenerateRequest& request) {
  return Model::open(path, options).generate(request).latents;
}

// Bytes of the layers of all text encoders, by encoder.
std::vector<std::vector<int64_t>> layer_bytes(const runtime::ModelState& state) {
  std::vector<std::vector<int64_t>> all;
  for (const models::TextPart& text : state.spec->text_parts) {
    if (!state.folder.has(text.encoder)) continue;
    const auto meta = diffusion::meta_weights_of(state, text.encoder);
    const auto encoder = diffusion::encoder_over(state, text.encoder, meta);
    std::vector<int64_t>& layers = all.emplace_back();
    for (int64_t i = 0; i < encoder->layers(); ++i)
      layers.push_back(runtime::BlockLayout(meta, [&](const nn::Weights& noted) {
                         encoder->ask(i, noted);
                       }).bytes());
  }
  return all;
}

int64_t sum(const std::vector<int64_t>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

Report::Traffic traffic(const Report& report, const std::string& operation) {
  Report::Traffic all;
  for (const auto& [key, sent] : report.traffic)
    if (key.first == operation) all.messages += sent.messages, all.bytes += sent.bytes;
  return all;
}

TEST(ShardedText, ThreadsGiveTheBitsOfOneRank) {
  for (const auto& [name, path] : models())
    for (const Precision precision : {Precision::f32, Precision::bf16}) {
      const auto one = latents(path, asked_of("", nullptr, precision), prompted(name));
      for (const char* plan : {"shard=2", "shard=3", "cfg=2,ulysses=2,shard=2,order=shard+cfg"})
        EXPECT_EQ(latents(path, asked_of(plan, nullptr, precision), prompted(name)), one)
            << name << ", " << plan;
      GenerateRequest single = prompted(name, false);
      single.prompts.pop_back();
      EXPECT_EQ(latents(path, asked_of("shard=3", nullptr, precision), single),
                latents(path, asked_of("", nullptr, precision), single))
          << name << ", one text for three ranks";
    }
}

TEST(ShardedText, GoesWithEveryOtherAxis) {
  const std::string path = path_of("pixart");
  for (const auto& [plan, as] : {std::pair{"data=2,shard=2", ""},
                                 {"tensor=3,shard=2", "tensor=3"},
                                 {"ring=2,shard=2", "ring=2"},
                                 {"pipefusion=2,patches=2,shard=2", "patches=2"},
                                 {"distrifusion=2,shard=2", "shards=2"}})
    EXPECT_EQ(latents(path, asked_of(plan), prompted("pixart")),
              latents(path, asked_of(as), prompted("pixart")))
        << plan;
  GenerateRequest decoded = prompted("pixart");
  decoded.decode = true;
  const auto image = [&](const char* plan) {
    return Model::open(path, asked_of(plan)).generate(decoded).images.at(1).rgb;
  };
  EXPECT_EQ(image("shard=2,vae=+1"), image(""));
}

// The ranks of the first group, and no others; each layer's runs once to each of the others.
TEST(ShardedText, ProcessesGiveTheBitsOfOneRankAndEachSendsItsRuns) {
  for (const auto& [name, path] : models()) {
    const auto one = latents(path, asked_of(""), prompted(name));
    runtime::ModelState state;
    runtime::open_model(path, asked_of("shard=2"), state);
    for (const auto& [plan, ranks] :
         {std::pair{"shard=2", 2}, {"shard=3", 3}, {"cfg=2,shard=2", 2}}) {
      int64_t bytes = 0, layers = 0;
      for (const auto& of : layer_bytes(state)) bytes += sum(of), layers += std::ssize(of);
      const int world = parse_plan(plan).world();
      on_processes(world, [&, name = name, path = path, plan = plan,
                           ranks = ranks](const Processes& processes) {
        const GenerateResult got =
            Model::open(path, asked_of(plan, &processes)).generate(prompted(name));
        EXPECT_EQ(got.elsewhere, processes.rank() > 0);
        if (processes.rank() > 0) return;
        EXPECT_EQ(got.latents, one) << name << ", " << plan;
        const Report::Traffic sent = traffic(got.report, "text_weights");
        EXPECT_EQ(sent.bytes, (ranks - 1) * bytes) << name << ", " << plan;
        EXPECT_EQ(sent.messages, ranks * (ranks - 1) * layers) << name << ", " << plan;
        const std::vector<int> encode = diffusion::encoding_ranks(parse_plan(plan));
        ASSERT_EQ(std::ssize(encode), ranks);
        ASSERT_EQ(std::ssize(got.report.per_rank), world);
        double flops = 0;
        for (int rank = 0; rank < world; ++rank) {
          const Report::Rank& did = got.report.per_rank[static_cast<size_t>(rank)];
          const bool mine = std::find(encode.begin(), encode.end(), rank) != encode.end();
          EXPECT_EQ(did.text_flops > 0, mine) << name << ", " << plan << ", rank " << rank;
          EXPECT_EQ(did.text_peak_bytes.weights > 0, mine) << name << ", " << plan << ' ' << rank;
          flops += did.text_flops;
        }
        const auto threads = Model::open(path, asked_of(plan)).generate(prompted(name)).report;
        double theirs = 0;
        for (const Report::Rank& did : threads.per_rank) theirs += did.text_flops;
        EXPECT_DOUBLE_EQ(flops, theirs) << name << ", " << plan;
        EXPECT_EQ(traffic(threads, "text_weights").bytes, sent.bytes) << name << ", " << plan;
      });
    }
  }
}

// A rank holds tables and other weights around the layers one at a time, as a single rank does.
int64_t beside_layers(const runtime::ModelState& state, const std::string& part) {
  const auto meta = diffusion::meta_weights_of(state, part);
  tensor::Scope scope;
  scope.memory = std::make_shared<tensor::MemoryTracker>();
  const tensor::BindScope bind(scope);
  const auto passing = std::make_shared<load::MetaWeights>();
  diffusion::encoder_over(state, part, meta)->encode({{0}, {1}, 1}, {}, [&](int64_t) {
    return passing;
  });
  return scope.memory->peak(tensor::MemoryClass::weights);
}

TEST(ShardedText, HoldsAPartOfTheLayersAndTwoOfThemAsIsPredicted) {
  for (const auto& [name, path] : models())
    for (const bool processes : {false, true})
      for (const int ranks : {2, 4}) {
        const auto run = [&, name = name, path = path](const Processes* of) {
          runtime::ModelState state;
          runtime::open_model(path, asked_of("shard=" + std::to_string(ranks), of), state);
          diffusion::Job job = diffusion::plan_job(state, prompted(name));
          const admission::MemoryFit fit = admission::fit_memory(state, prompted(name), job);
          diffusion::encode_text(state, prompted(name), {}, job);
          diffusion::broadcast_conditioning(state, job);
          const auto layers = layer_bytes(state);
          int64_t allowed = 0;  // by any encoder
          for (const auto& each : layers)
            allowed = std::max(allowed, sum(each) / ranks + 64 * std::ssize(each) +
                                            2 * *std::max_element(each.begin(), each.end()));
          int64_t beside = 0;
          for (const diffusion::Text& text : job.asked.texts)
            if (text.there) beside = std::max(beside, beside_layers(state, text.part.encoder));
          allowed += beside;
          for (size_t i = 0; i < job.counted.encoded.per_rank.size(); ++i) {
            const MemoryPeaks& held = job.counted.encoded.per_rank[i].peak_bytes;
            const size_t rank = of ? static_cast<size_t>(of->rank()) : i;
            EXPECT_GT(held.weights, 0) << name << ", rank " << rank << " of " << ranks;
            const int64_t text = fit.denoise.ranks.at(rank).text;
            EXPECT_LE(held.weights + held.buffers, allowed)
                << name << ", rank " << rank << ": weights " << held.weights << ", beside layers "
                << beside;
            EXPECT_LE(held.total, text) << name << ", rank " << rank;
            EXPECT_GE(double(held.total), 0.95 * double(text))
                << name << ", rank " << rank << " of " << ranks;
          }
          EXPECT_LE(job.counted.meters.memory->peak(), fit.text) << name;
        };
        if (processes)
          on_processes(ranks, [&](const Processes& of) { run(&of); });
        else
          run(nullptr);
      }
}

// On meta, from the configurations alone: all bytes at the same time, except activations.
TEST(ShardedText, PublishedEncodersStayWithinTheirPartAndTwoLayers) {
  const base::Json t5 = {{"vocab_size", 32128},
                         {"d_model", 4096},
                         {"d_kv", 64},
                         {"d_ff", 10240},
                         {"num_layers", 24},
                         {"num_heads", 64},
                         {"feed_forward_proj", "gated-gelu"}};
  const auto clip = [](int64_t width, int64_t layers, int64_t heads) {
    return base::Json{{"vocab_size", 49408},
                      {"hidden_size", width},
                      {"intermediate_size", 4 * width},
                      {"num_hidden_layers", layers},
                      {"num_attention_heads", heads},
                      {"projection_dim", width}};
  };
  for (const auto& [type, config] : {std::pair{"T5EncoderModel", t5},
                                     {"CLIPTextModelWithProjection", clip(768, 12, 12)},
                                     {"CLIPTextModelWithProjection", clip(1280, 32, 20)}})
    for (const int ranks : {2, 4, 8}) {
      runtime::ModelState state;
      state.options = asked_of("shard=" + std::to_string(ranks));
      state.place.device = tensor::Device::meta;
      state.folder.components.push_back({"text_encoder", "transformers", type, "nowhere", config});
      state.workers.ranks.resize(static_cast<size_t>(ranks));
      const runtime::RunMeters meters(state.workers.ranks.size());
      Report did;
      const models::TextStates made =
          diffusion::encode_sharded(state, "text_encoder", {{5, 6}, {1, 1}, 1}, 0, meters, {}, did);
      EXPECT_EQ(made.last.size(0), 2);
      const auto meta = diffusion::meta_weights_of(state, "text_encoder");
      const auto encoder = diffusion::encoder_over(state, "text_encoder", meta);
      int64_t all = 0, largest = 0;
      for (int64_t i = 0; i < encoder->layers(); ++i) {
        const runtime::BlockLayout layer(meta,
                                         [&](const nn::Weights& noted) { encoder->ask(i, noted); });
        all += layer.bytes();
        largest = std::max(largest, layer.bytes());
      }
      for (const Report::Rank& rank : did.per_rank) {
        const MemoryPeaks& held = rank.peak_bytes;
        EXPECT_LE(held.total - held.activations,
                  std::max(all / ranks + 2 * largest, beside_layers(state, "text_encoder")))
            << type << ", " << encoder->layers() << " layers on " << ranks;
        EXPECT_GE(held.total, largest) << type;
      }
    }
}

/// A copy of the small video model with a text encoder to overwrite.
struct Trial {
  golden::Scratch scratch;
  std::string folder = scratch / "model";
  Trial() {
    std::filesystem::copy(golden::kVideoModel, folder, std::filesystem::copy_options::recursive);
  }
  // Overwrites all bytes after the header. Unless `seen`, times of the file do not change.
  void fill(char with, bool seen) const {
    const std::string path = folder + "/text_encoder/model.safetensors";
    const auto written = std::filesystem::last_write_time(path);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    uint64_t header = 0;
    file.read(reinterpret_cast<char*>(&header), sizeof header);
    const std::vector<char> bytes(std::filesystem::file_size(path) - header - 8, with);
    file.seekp(int64_t(header) + 8);
    file.write(bytes.data(), std::ssize(bytes));
    file.close();
    ASSERT_TRUE(file) << path;
    std::filesystem::last_write_time(path, seen ? written + std::chrono::seconds(2) : written);
  }
};

TEST(ShardedText, RunsThatAreKeptAreNotReadAgain) {
  for (const bool processes : {false, true}) {
    const Trial trial;
    const auto run = [&](const Processes* of) {
      RunOptions options = asked_of("shard=2", of);
      options.keep_parts = true;
      runtime::ModelState state;
      runtime::open_model(trial.folder, options, state);
      const bool first = cluster::Ranks::of(options).first();
      const auto once = [&](int64_t* held = nullptr) {
        const GenerateResult got = generate(state, prompted("video"), {});
        if (held) *held = got.report.peak_bytes.total;
        return got.latents;
      };
      const auto wait = [&] {
        if (of) comm::barrier(*of->state().world);
      };
      int64_t before = 0, later = 0;
      const auto latents = once(&before);
      const int64_t kept = state.loaded.kept.bytes();
      EXPECT_GE(kept, diffusion::sharded_bytes(state, "text_encoder", {}));
      wait();
      if (first) trial.fill(0, false);
      wait();
      EXPECT_EQ(once(&later), latents) << "what was kept is read again";
      EXPECT_EQ(state.loaded.kept.bytes(), kept);
      if (first) {
        EXPECT_GE(later, kept) << "what is kept counts in each run";
      }
      wait();
      if (first) trial.fill(0, true);
      wait();
      const auto changed = once();
      if (first) {
        EXPECT_NE(changed, latents) << "the file is another one";
      }
    };
    if (processes)
      on_processes(2, [&](const Processes& of) { run(&of); });
    else
      run(nullptr);
  }
}

// The end of all ranks if weights are damaged, or after a stop.
ErrorCode end_of(const std::string& folder, const Processes* of, bool stopped) {
  std::stop_source stop;
  RunControl control;
  control.stop = stop.get_token();
  control.on_progress = [&](const Progress& progress) {
    if (stopped && progress.phase == Phase::encode) stop.request_stop();
  };
  try {
    Model::open(folder, asked_of("shard=2", of)).generate(prompted("video"), control);
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing failed";
  return ErrorCode::usage;
}

TEST(ShardedText, WhatEndsOneRankEndsAll) {
  const Trial damaged;
  damaged.fill('\xff', true);
  EXPECT_EQ(end_of(damaged.folder, nullptr, false), ErrorCode::model);
  EXPECT_EQ(end_of(golden::kVideoModel, nullptr, true), ErrorCode::cancelled);
  for (const bool stopped : {false, true}) {
    std::vector<ErrorCode> codes(2, ErrorCode::usage);
    EXPECT_THROW(on_processes(2,
                              [&](const Processes& of) {
                                const auto rank = static_cast<size_t>(of.rank());
                                codes[rank] = end_of(stopped ? golden::kVideoModel : damaged.folder,
                                                     &of, stopped);
                                fail(codes[rank], "ended");
                              }),
                 Error);
    EXPECT_EQ(codes, std::vector(2, stopped ? ErrorCode::cancelled : ErrorCode::model));
  }
}

}  // namespace
}  // namespace tessera::pipeline

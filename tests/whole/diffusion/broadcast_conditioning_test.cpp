#include "diffusion/broadcast_conditioning.h"

#include <cstring>
#include <filesystem>
#include <mutex>

#include "admission/memory_plan.h"
#include "cluster/on_processes.h"
#include "diffusion/conditioning.h"
#include "diffusion/encode_text.h"
#include "diffusion/plan_job.h"
#include "diffusion/text_encoders.h"
#include "load/safetensors.h"
#include "runtime/open_model.h"
#include "runtime/resolve_model.h"
#include "test_paths.h"
#include "whole/golden.h"

// If ranks are processes, the first process encodes texts.
namespace tessera::pipeline {
namespace {

namespace fs = std::filesystem;
using tensor::MemoryClass;
using tensor::Tensor;

const std::string kVideo = TESSERA_TEST_DATA "/diffusers/cogvideox_2b/model";
const std::string kPixArt = TESSERA_TEST_DATA "/diffusers/pixart_alpha/model";

RunOptions asked_of(const std::string& plan, const Processes* processes) {
  RunOptions options = golden::options(Precision::f32);
  options.plan = parse_plan(plan);
  options.processes = processes;
  return options;
}

// Two prompts with different lengths, of which the second is empty, and a negative prompt.
GenerateRequest prompted(bool video) {
  GenerateRequest q;
  q.prompts = {"waves on a long beach", ""};
  q.negative_prompt = "fog";
  q.guidance = 3;
  q.count = 2;
  q.steps = 2;
  q.decode = false;
  if (video) q.width = q.height = 32, q.frames = 5;
  return q;
}

Tensor zeros(const Tensor& like) { return Tensor::zeros(like.shape(), like.dtype()); }

std::map<std::string, std::vector<float>> rows_of(const diffusion::Job& job,
                                                  const std::vector<int>& ids) {
  std::map<std::string, std::vector<float>> rows;
  for (const auto& [name, x] : diffusion::take_sequences(job.asked.conditioning, ids).tensors)
    rows[name] = x.to_floats();
  return rows;
}

TEST(ShareText, EachProcessHasTheTextOfItsSequencesAndOneReadsEncoders) {
  for (const bool video : {true, false}) {
    const std::string model = video ? kVideo : runtime::resolve_model("scenes");
    const GenerateRequest request = prompted(video);
    runtime::ModelState alone;
    runtime::open_model(model, asked_of("", nullptr), alone);
    diffusion::Job whole = diffusion::plan_job(alone, request);
    diffusion::encode_text(alone, request, {}, whole);
    for (const char* plan : {"cfg=2", "data=3", "data=2,cfg=2", "ulysses=2", "ring=2,patches=2"})
      on_processes(parse_plan(plan).world(), [&](const Processes& processes) {
        runtime::ModelState state;
        runtime::open_model(model, asked_of(plan, &processes), state);
        diffusion::Job job = diffusion::plan_job(state, request);
        const int64_t text = admission::fit_memory(state, request, job).text;
        diffusion::encode_text(state, request, {}, job);
        const int64_t read = job.counted.meters.memory->peak(MemoryClass::weights);
        diffusion::broadcast_conditioning(state, job);
        const int rank = processes.rank();
        EXPECT_EQ(diffusion::encodes_text(state), rank == 0);
        EXPECT_EQ(read > 0, rank == 0) << "weights of encoders, rank " << rank << ", " << plan;
        EXPECT_EQ(text > 0, rank == 0) << "predicted, rank " << rank << ", " << plan;
        const auto mine = parallel::Partition(state.options.plan, job.workload()).sequences(rank);
        EXPECT_EQ(rows_of(job, mine), rows_of(whole, mine)) << plan << ", rank " << rank;
        const auto& sent = processes.state().world->ledger().entries();
        const auto found = sent.find({"text", -1});  // waiting ranks have an entry, too
        EXPECT_EQ(found != sent.end() && found->second.messages > 0, rank == 0) << plan;
      });
  }
}

// Masks and their lengths travel with embeddings; a rank without a sample waits for nothing.
TEST(ShareText, MasksGoWithTheTextAndNoneToWhomHasNoSequence) {
  const golden::Scratch scratch;
  const std::string file = scratch / "text.safetensors";
  std::map<std::string, Tensor> text;
  for (const std::string name : {"prompt_embeds", "negative_prompt_embeds"}) {
    text[name] = Tensor::empty({2, 5, 32}, tensor::DType::f32);
    for (int64_t i = 0; i < text[name].elements(); ++i)
      text[name].data<float>()[i] = float(i % 97) + (name == "prompt_embeds" ? 0.f : 100.f);
  }
  const std::vector<int32_t> seen{1, 1, 1, 0, 0, 1, 0, 0, 0, 0}, all(10, 1);
  text["prompt_attention_mask"] = Tensor::from(std::span<const int32_t>(seen), {2, 5});
  text["negative_prompt_attention_mask"] = Tensor::from(std::span<const int32_t>(all), {2, 5});
  load::write_safetensors(file, text);
  GenerateRequest request;
  request.embeddings = file;
  request.guidance = 2;
  request.decode = false;
  on_processes(3, [&](const Processes& processes) {
    runtime::ModelState state;
    runtime::open_model(kPixArt, asked_of("data=3", &processes), state);
    diffusion::Job job = diffusion::plan_job(state, request);
    job.asked.texts.resize(1);  // as if the embeddings came from a prompt
    const auto mine =
        parallel::Partition(state.options.plan, job.workload()).sequences(processes.rank());
    EXPECT_TRUE(mine.size() == 2 || mine.empty()) << "of two samples on three ranks";
    const auto expected = rows_of(job, mine);
    if (processes.rank() != 0)
      for (const char* name : {"encoder_hidden_states", "encoder_attention_mask"})
        job.asked.conditioning.tensors.at(name) = zeros(job.asked.conditioning.tensors.at(name));
    diffusion::broadcast_conditioning(state, job);
    EXPECT_EQ(rows_of(job, mine), expected);
    EXPECT_GE(expected.size(), 2u) << "embeddings and their mask";
  });
}

TEST(ShareText, ProcessesGiveTheLatentsOfOne) {
  for (const bool video : {true, false}) {
    const std::string model = video ? kVideo : runtime::resolve_model("scenes");
    const auto one = Model::open(model, asked_of("", nullptr)).generate(prompted(video)).latents;
    for (const char* plan : {"data=2,cfg=2", "ulysses=2", "pipefusion=2,patches=1,cfg=2"}) {
      std::mutex mutex;
      std::map<int, int> encoders;
      on_processes(parse_plan(plan).world(), [&](const Processes& processes) {
        RunControl control;
        control.on_progress = [&](const Progress& p) {
          const std::lock_guard lock(mutex);
          if (p.phase == Phase::encode) ++encoders[processes.rank()];
        };
        const GenerateResult got =
            Model::open(model, asked_of(plan, &processes)).generate(prompted(video), control);
        EXPECT_EQ(got.elsewhere, processes.rank() != 0);
        if (processes.rank() == 0) {
          EXPECT_EQ(got.latents, one) << plan;
        }
      });
      EXPECT_EQ(encoders.size(), 1u) << plan;
      EXPECT_GE(encoders[0], 1) << plan;
    }
  }
}

/// The error of each rank of two when the first rank fails, or is stopped, while encoding.
std::vector<ErrorCode> ends(const std::string& model, bool stopped) {
  std::vector<ErrorCode> codes(2, ErrorCode::usage);
  try {
    on_processes(2, [&](const Processes& processes) {
      std::stop_source stop;
      RunControl control;
      control.stop = stop.get_token();
      if (processes.rank() == 0)
        control.on_progress = [&](const Progress& p) {
          if (stopped && p.phase == Phase::encode) stop.request_stop();
        };
      try {
        Model::open(model, asked_of("ulysses=2", &processes)).generate(prompted(true), control);
      } catch (const Error& e) {
        codes[static_cast<size_t>(processes.rank())] = e.code();
        throw;
      }
    });
  } catch (const Error&) {
    return codes;
  }
  ADD_FAILURE() << "nothing failed";
  return codes;
}

TEST(ShareText, WhatEndsTheFirstEndsAll) {
  EXPECT_EQ(ends(kVideo, true), (std::vector(2, ErrorCode::cancelled)));
  const golden::Scratch scratch;
  const fs::path broken = scratch / "model";
  fs::copy(kVideo, broken, fs::copy_options::recursive);
  const std::string file = broken / "text_encoder/model.safetensors";
  std::map<std::string, Tensor> weights;
  const load::SafetensorsFile read(file);
  for (const auto& [name, entry] : read.entries()) {
    weights[name] = read.get(name);
    std::memset(weights[name].raw(), 0xff, static_cast<size_t>(weights[name].bytes()));
  }
  load::write_safetensors(file, weights);
  EXPECT_EQ(ends(broken, false), (std::vector(2, ErrorCode::model)));
}

}  // namespace
}  // namespace tessera::pipeline

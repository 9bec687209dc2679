#include "pipeline/fingerprint.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace tessera::pipeline {
namespace {

TEST(RunFingerprint, EveryPartOfARequestCounts) {
  runtime::ModelState state;
  state.folder.path = ".";
  const auto items = [&](const auto& change) {
    GenerateRequest request;
    change(request);
    return fingerprint_of(state, request).items();
  };
  const auto usual = items([](GenerateRequest&) {});
  EXPECT_EQ(usual, items([](GenerateRequest&) {}));
  using Q = GenerateRequest;
  const std::vector<std::function<void(Q&)>> changes = {
      [](Q& q) { q.classes = {"1"}; },
      [](Q& q) {
        q.prompts = {"a", "b"};
      },
      [](Q& q) { q.prompts = {"a b"}; },
      [](Q& q) { q.negative_prompt = "x"; },
      [](Q& q) { q.text_tokens = 7; },
      [](Q& q) { q.steps = 3; },
      [](Q& q) {
        q.timesteps = {900, 100};
      },
      [](Q& q) {
        q.sigmas = {0.9, 0.1};
      },
      [](Q& q) { q.padding_mask_crop = 8; },
      [](Q& q) { q.guidance = 2; },
      [](Q& q) { q.true_guidance = 2; },
      [](Q& q) { q.guidance_rescale = 1; },
      [](Q& q) { q.cfg_normalization = 1; },
      [](Q& q) { q.cfg_truncation = 0.5f; },
      [](Q& q) { q.guidance_start = 0.5f; },
      [](Q& q) { q.width = 8; },
      [](Q& q) { q.height = 8; },
      [](Q& q) { q.binning = true; },
      [](Q& q) { q.frames = 9; },
      [](Q& q) { q.count = 2; },
      [](Q& q) { q.seed = 1; },
      [](Q& q) {
        q.seeds = {1, 2};
      },
      [](Q& q) { q.noise = NoiseSource::philox; },
      [](Q& q) { q.scheduler = SchedulerName::ddpm; },
      [](Q& q) { q.save_latents = "x"; },
      [](Q& q) {
        static const float one = 1;
        q.initial_tensors["latents"] = {ElementType::f32, {1}, &one};
      },
      [](Q& q) { q.trace = "x"; },
      [](Q& q) { q.decode = false; },
      [](Q& q) { q.vae_tile = 64; },
      [](Q& q) { q.vae_chunk = 64; },
      [](Q& q) { q.vae_tiling = VaeTiling::on; },
      [](Q& q) { q.overwrite = true; },
      [](Q& q) { q.compare_steps = true; }};
  std::set<std::vector<std::pair<std::string, std::string>>> seen = {usual};
  for (const auto& change : changes) EXPECT_TRUE(seen.insert(items(change)).second) << seen.size();
}

TEST(RunFingerprint, EveryPartOfACompletionCounts) {
  runtime::ModelState state;
  state.folder.path = ".";
  using Q = CompleteRequest;
  const std::vector<std::function<void(Q&)>> changes = {
      [](Q&) {},
      [](Q& q) { q.prompts = {"a"}; },
      [](Q& q) {
        q.prompt_ids = {{1, 2}};
      },
      [](Q& q) {
        q.prompt_ids = {{1}, {2}};
      },
      [](Q& q) { q.chat = "[]"; },
      [](Q& q) { q.raw = true; },
      [](Q& q) { q.max_tokens = 4; },
      [](Q& q) { q.block = 4; },
      [](Q& q) { q.decode = "steps:4"; },
      [](Q& q) { q.steps = 4; },
      [](Q& q) { q.cache.kind = KvCache::none; },
      [](Q& q) { q.stop_at_eos = StopAtEos::none; },
      [](Q& q) { q.select = "topk:2"; },
      [](Q& q) { q.select_prefill = true; },
      [](Q& q) { q.as_published = true; },
      [](Q& q) { q.temperature = 1; },
      [](Q& q) { q.top_k = 3; },
      [](Q& q) { q.top_p = 0.5; },
      [](Q& q) { q.repetition_penalty = 2; },
      [](Q& q) { q.n = 2; },
      [](Q& q) { q.logprobs = 0; },
      [](Q& q) { q.logprobs = 1; },
      [](Q& q) { q.seed = 1; },
      [](Q& q) { q.stop = {"x"}; }};
  std::set<std::vector<std::pair<std::string, std::string>>> seen;
  for (const auto& change : changes) {
    Q request;
    change(request);
    EXPECT_TRUE(seen.insert(fingerprint_of(state, request).items()).second) << seen.size();
  }
}

}  // namespace
}  // namespace tessera::pipeline

#include "completion/prefix_cache.h"

#include <mutex>
#include <set>

#include "admission/token_memory.h"
#include "completion/recorder.h"
#include "pipeline/complete.h"
#include "whole/canvas_model.h"
#include "whole/llada_golden.h"
#include "whole/text_model.h"

namespace tessera {
namespace {

using Ids = std::vector<int32_t>;

Ids some(int64_t count, int32_t from = 1) {
  Ids ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(from + static_cast<int32_t>(i * 7 % 80));
  return ids;
}

/// Canvases of 8, sliding and global layers.
base::Json canvas_config() {
  return {{"model_type", "diffusion_gemma"},
          {"architectures", {"DiffusionGemmaForBlockDiffusion"}},
          {"canvas_length", 8},
          {"text_config",
           {{"model_type", "diffusion_gemma_text"},
            {"vocab_size", 90},
            {"hidden_size", 24},
            {"intermediate_size", 20},
            {"moe_intermediate_size", 12},
            {"num_hidden_layers", 3},
            {"num_attention_heads", 4},
            {"num_key_value_heads", 2},
            {"num_global_key_value_heads", 2},
            {"head_dim", 8},
            {"global_head_dim", 12},
            {"num_experts", 6},
            {"top_k_experts", 2},
            {"sliding_window", 7},
            {"layer_types", {"sliding_attention", "full_attention", "full_attention"}},
            {"max_position_embeddings", 256}}}};
}

/// Blocks of 8 in a context of 256.
struct Talk {
  explicit Talk(const std::string& plan = "", const std::string& other = "") {
    options.plan = parse_plan(plan);
    runtime::open_model(other.empty() ? folder.path() : other, options, state);
    q.max_tokens = 20;
    q.stop_at_eos = StopAtEos::none;
  }
  Completion ask(const Ids& ids, PrefixCache* with) {
    q.prompt_ids = {ids};
    CompleteControl control;
    control.prefix = with;
    return pipeline::complete(state, q, control).completions.at(0);
  }
  /// With `reused` kept tokens, and without any: the answers are bit-identical.
  Completion turn(const Ids& ids, int64_t reused) {
    const Completion made = ask(ids, &prefix), alone = ask(ids, nullptr);
    EXPECT_EQ(made.reused, reused);
    EXPECT_EQ(alone.reused, 0);
    EXPECT_EQ(made.ids, alone.ids);
    EXPECT_EQ(made.confidences, alone.confidences);
    const auto computed = [](const Completion& c) {
      int64_t tokens = 0;
      for (const auto& pass : c.passes) tokens += pass.to - pass.from;
      return tokens;
    };
    EXPECT_EQ(computed(made) + reused, computed(alone));
    return made;
  }
  const golden::TextModel folder{"llada2"};
  RunOptions options = golden::options(Precision::bf16);
  runtime::ModelState state;
  CompleteRequest q;
  PrefixCache prefix;
};

Ids joined(const Ids& a, const Ids& b) {
  Ids all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

// Prompt, answer and the next turn; then a changed history; then another prompt.
void three_turns(Talk& talk) {
  const Ids first = some(21);
  const Completion answer = talk.turn(first, 0);
  EXPECT_EQ(talk.prefix.tokens(), 40);  // the last block, from there on, was not finished
  EXPECT_GT(talk.prefix.bytes(), 0);
  Ids said = joined(joined(first, answer.ids), some(9, 30));
  const Completion next = talk.turn(said, 40);
  EXPECT_EQ(talk.prefix.tokens(), (50 + 20 - 1) / 8 * 8);
  said[18] ^= 1;
  talk.turn(said, 16);
  talk.turn(said, 48);
  talk.turn(Ids(said.begin(), said.begin() + 24), 24);  // ends where a block does
  talk.turn(some(30, 9), 0);
}

TEST(PrefixCache, AnswersAreTheSameBitByBit) {
  Talk talk;
  three_turns(talk);
}

TEST(PrefixCache, UnderEveryPolicyOfBlocks) {
  for (const char* decode : {"steps:4", "edit:0.2,0.1,4", "factor:1.5"}) {
    Talk talk;
    talk.q.decode = decode;
    talk.q.select = "des-max:0.5";
    const Ids first = some(21);
    const Ids said = joined(joined(first, talk.turn(first, 0).ids), some(9, 30));
    talk.turn(said, talk.prefix.tokens());
    EXPECT_GE(talk.prefix.tokens(), 48) << decode;
  }
  Talk drawn;
  drawn.q.temperature = 1.5;
  drawn.q.repetition_penalty = 1.2;
  drawn.turn(some(21), 0);
  drawn.turn(some(29), 16);
  Talk published;
  published.q.as_published = true;
  published.turn(some(21), 0);
  EXPECT_EQ(published.prefix.tokens(), 40);
  published.turn(some(21), 16);
}

TEST(PrefixCache, OnSeveralRanks) {
  for (const char* plan : {"expert=2", "tensor=2"}) {
    Talk talk(plan);
    three_turns(talk);
  }
}

struct CanvasTalk {
  explicit CanvasTalk(const std::string& plan = "") : talk(plan, folder.path()) {
    talk.q.decode = "canvas:max_denoising_steps=3,entropy_bound=1,confidence_threshold=0";
  }
  const golden::CanvasModel folder{canvas_config()};
  Talk talk;
};

// Text is kept token by token; the last canvas is not read as text.
TEST(PrefixCache, HoldsTheTextBeforeACanvas) {
  for (const char* plan : {"", "expert=2", "tensor=2"}) {
    CanvasTalk canvas(plan);
    Talk& talk = canvas.talk;
    const Ids first = some(21);
    const Completion answer = talk.turn(first, 0);
    EXPECT_EQ(talk.prefix.tokens(), 37) << plan;
    Ids said = joined(joined(first, answer.ids), some(9, 30));
    talk.turn(said, 37);
    EXPECT_EQ(talk.prefix.tokens(), 50 + 16) << plan;
    said[18] ^= 1;
    talk.turn(said, 18);
    talk.turn(said, 50);  // all of it: the first pass denoises
    talk.q.block = 16;
    talk.q.select = "des-vote:0.5";
    talk.turn(said, 50);
    talk.turn(some(30, 9), 0);
  }
}

TEST(PrefixCache, OfCanvasesThatWereStoppedKeepsWhatIsText) {
  CanvasTalk canvas;
  Talk& talk = canvas.talk;
  std::stop_source stop;
  talk.q.prompt_ids = {some(21)};
  CompleteControl control;
  control.prefix = &talk.prefix;
  control.stop = stop.get_token();
  control.on_progress = [&](const CompleteProgress& p) {
    if (p.from >= 29) stop.request_stop();
  };
  EXPECT_THROW(pipeline::complete(talk.state, talk.q, control), Error);
  EXPECT_EQ(talk.prefix.tokens(), 29);
  talk.turn(some(21), 21);
}

TEST(PrefixCache, IsOfOneModelAndLengthOfBlocks) {
  Talk talk;
  talk.turn(some(21), 0);
  talk.q.block = 16;
  talk.turn(some(21), 0);
  talk.turn(some(21), 16);
  Talk other;
  EXPECT_EQ(other.ask(some(21), &talk.prefix).reused, 0);
  EXPECT_EQ(other.ask(some(21), &talk.prefix).reused, 16);
  talk.prefix.clear();
  EXPECT_EQ(talk.prefix.tokens(), 0);
  EXPECT_EQ(talk.prefix.bytes(), 0);
  EXPECT_EQ(other.ask(some(21), &talk.prefix).reused, 0);
}

TEST(PrefixCache, NothingIsKeptWhereItWouldNotBeTheSame) {
  Talk talk;
  const auto never = [&](const char* what) {
    talk.prefix.clear();
    for (int i = 0; i < 2; ++i) EXPECT_EQ(talk.ask(some(21), &talk.prefix).reused, 0) << what;
    EXPECT_EQ(talk.prefix.tokens(), 0) << what;
  };
  talk.q.cache.kind = KvCache::none;
  never("no cache");
  talk.q.cache.kind = KvCache::automatic;
  talk.q.select = "des-max:0.5";
  talk.q.select_prefill = true;
  never("prefill under the rule");
  talk.q.select_prefill = false;
  talk.q.n = 2;
  talk.q.temperature = 1;
  never("several answers");
}

TEST(PrefixCache, WhatWasStoppedKeepsWhatIsFinished) {
  Talk talk;
  talk.q.max_tokens = 60;
  talk.q.decode = "steps:8";
  std::stop_source stop;
  talk.q.prompt_ids = {some(21)};
  CompleteControl control;
  control.prefix = &talk.prefix;
  control.stop = stop.get_token();
  control.on_progress = [&](const CompleteProgress& p) {
    if (p.from >= 40) stop.request_stop();
  };
  EXPECT_THROW(pipeline::complete(talk.state, talk.q, control), Error);
  EXPECT_EQ(talk.prefix.tokens(), 40);
  talk.turn(some(21), 16);
  // Stopped before the first pass.
  control.on_progress = {};
  EXPECT_THROW(pipeline::complete(talk.state, talk.q, control), Error);
  talk.turn(some(21), 16);
  // Refused, for want of memory.
  const int64_t kept = talk.prefix.tokens();
  talk.state.options.memory_budget = 1;
  EXPECT_THROW(pipeline::complete(talk.state, talk.q, control), Error);
  EXPECT_EQ(talk.prefix.tokens(), kept);
}

// The second request's peak of keys and values, which the dry run of `run` says.
void expect_predicted(Talk& talk, const completion::TokenRun& run) {
  std::shared_ptr<tensor::MemoryTracker> memory;
  completion::PassWatch watch;
  watch.experts = [&](const nn::MoeWork&) { memory = tensor::current_scope().memory; };
  talk.q.prompt_ids = {some(21)};
  CompleteControl control;
  control.prefix = &talk.prefix;
  const CompleteResult made = pipeline::complete(talk.state, talk.q, control, watch);
  EXPECT_EQ(made.completions[0].reused, run.kept);
  const auto need = admission::dry_run_tokens(talk.state, talk.options, run);
  EXPECT_EQ(memory->peak(tensor::MemoryClass::kv), need.ranks.at(0).kv);
  EXPECT_GE(need.ranks[0].kv, made.peak_bytes.kv);
  completion::TokenRun alone = run;
  alone.kept = alone.kept_slots = 0;
  EXPECT_GT(need.ranks[0].kv,
            admission::dry_run_tokens(talk.state, talk.options, alone).ranks.at(0).kv);
}

TEST(PrefixCache, MemoryIsPredicted) {
  for (const int64_t second : {30, 160}) {  // the answer of the first is longer, or shorter
    Talk talk;
    talk.q.max_tokens = 120;
    talk.ask(some(21), &talk.prefix);
    talk.q.max_tokens = second;
    completion::TokenRun run{{(21 + second + 7) / 8 * 8}, 8, 8, {16}, true};
    run.kept = 16;
    run.kept_slots = 144;
    expect_predicted(talk, run);
    CanvasTalk canvas;
    canvas.talk.q.max_tokens = 120;
    canvas.talk.ask(some(21), &canvas.talk.prefix);
    canvas.talk.q.max_tokens = second;
    completion::TokenRun canvases{{21 + (second + 7) / 8 * 8}, 8, 8, {21}, true};
    canvases.canvas = 90;
    canvases.kept = 21;
    canvases.kept_slots = 21 + 120;
    expect_predicted(canvas.talk, canvases);
  }
}

}  // namespace
}  // namespace tessera

#include "completion/prefix_cache.h"

#include <mutex>
#include <set>

#include "admission/token_memory.h"
#include "completion/recorder.h"
#include "pipeline/complete.h"
#include "runtime/open_model.h"
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

/// Requests of several conversations in a batch, some of which join it.
struct Conversations {
  explicit Conversations(CanvasTalk& of, int64_t limit = 1 << 30) : talk(of.talk), prefix(limit) {}
  /// The first prompt begins a batch, the others join it before its second and later passes.
  std::vector<Completion> ask(const std::vector<Ids>& prompts, bool kept = true) {
    talk.q.prompt_ids = {prompts.front()};
    CompleteControl control;
    control.prefix = kept ? &prefix : nullptr;
    control.owner = [&](int answer) { return owners.at(size_t(answer)); };
    size_t given = 1;
    int pass = 0;
    control.join = [&] {
      std::vector<Ids> more;
      if (++pass > 1 && given < prompts.size()) more.push_back(prompts[given++]);
      return more;
    };
    return pipeline::complete(talk.state, talk.q, control).completions;
  }
  /// Answers are those without a cache, bit by bit.
  std::vector<Completion> turns(const std::vector<Ids>& prompts, const Ids& reused) {
    const auto made = ask(prompts), alone = ask(prompts, false);
    Ids found;
    for (size_t i = 0; i < prompts.size(); ++i) {
      found.push_back(static_cast<int32_t>(made[i].reused));
      EXPECT_EQ(made[i].ids, alone[i].ids) << i;
      EXPECT_EQ(made[i].confidences, alone[i].confidences) << i;
    }
    EXPECT_EQ(found, reused);
    return made;
  }
  Talk& talk;
  PrefixCache prefix;
  std::vector<std::string> owners{"anna", "anna", "anna"};
};

TEST(PrefixCache, OfManyConversationsServesEachPromptOfABatch) {
  for (const char* plan : {"", "expert=2", "tensor=2"}) {
    SCOPED_TRACE(plan);
    CanvasTalk canvas(plan);
    Conversations many(canvas);
    const std::vector<Ids> first{some(21), some(30, 9), some(12, 4)};
    const auto answers = many.turns(first, {0, 0, 0});
    EXPECT_EQ(many.prefix.tokens(), 21 + 16 + 30 + 16 + 12 + 16);
    std::vector<Ids> second;
    for (size_t i : {2, 0, 1}) second.push_back(joined(joined(first[i], answers[i].ids), some(5)));
    many.turns(second, {12 + 16, 21 + 16, 30 + 16});
    // Each replaced its beginning.
    EXPECT_EQ(many.prefix.tokens(), 12 + 20 + 5 + 21 + 20 + 5 + 30 + 20 + 5 + 3 * 16);
    // Two take a beginning in common, and it stays.
    Ids other = second[0];
    other.back() ^= 1;
    many.turns({other, second[0]}, {36, 37});
    many.turns({second[1]}, {21 + 25});
  }
}

TEST(PrefixCache, OfManyConversationsIsOfEachOwnerAlone) {
  CanvasTalk canvas;
  Conversations many(canvas);
  many.owners = {"anna", "bert", "anna"};
  many.turns({some(21), some(21)}, {0, 0});
  many.owners = {"carl", "bert", "anna"};
  many.turns({some(21), some(21), some(21)}, {0, 21, 21});
}

TEST(PrefixCache, OfManyConversationsStaysWithinItsLimit) {
  CanvasTalk canvas;
  Conversations one(canvas);
  one.turns({some(21)}, {0});
  const int64_t bytes = one.prefix.bytes();
  Conversations two(canvas, 2 * bytes);
  two.turns({some(21)}, {0});
  two.turns({some(21, 9)}, {0});
  two.turns({some(21)}, {21});  // used: the other is older now
  two.turns({some(21, 4)}, {0});
  EXPECT_EQ(two.prefix.bytes(), 2 * bytes);
  two.turns({some(21)}, {21});
  two.turns({some(21, 9)}, {0});
  Conversations less(canvas, bytes - 1);
  less.turns({some(21)}, {0});
  EXPECT_EQ(less.prefix.bytes(), 0) << "one that does not fit is not kept";
}

TEST(PrefixCache, OfManyConversationsKeepsThoseOfAStoppedBatch) {
  CanvasTalk canvas;
  Conversations many(canvas);
  std::stop_source stop;
  many.talk.q.prompt_ids = {some(21), some(30, 9)};
  CompleteControl control;
  control.prefix = &many.prefix;
  control.owner = [](int) { return "anna"; };
  control.stop = stop.get_token();
  control.on_progress = [&](const CompleteProgress& p) {
    if (p.from >= 38) stop.request_stop();
  };
  EXPECT_THROW(pipeline::complete(many.talk.state, many.talk.q, control), Error);
  EXPECT_EQ(many.prefix.tokens(), 29 + 38);
  many.turns({some(21), some(30, 9)}, {21, 30});
}

TEST(PrefixCache, OfManyConversationsLeavesWhenARunNeedsItsMemory) {
  CanvasTalk canvas;
  canvas.talk.options.keep_parts = true;
  runtime::ModelState state;
  runtime::open_model(canvas.folder.path(), canvas.talk.options, state);
  PrefixCache prefix(1 << 30);
  canvas.talk.q.prompt_ids = {some(21)};
  CompleteControl control;
  control.prefix = &prefix;
  pipeline::complete(state, canvas.talk.q, control);
  EXPECT_GT(prefix.bytes(), 0);
  canvas.talk.q.prompt_ids = {some(21, 9)};
  control.prefix = nullptr;
  completion::TokenRun run{{21 + 24}, 8, 8, {21}, true};
  run.canvas = 90;
  const int64_t need = admission::dry_run_tokens(state, state.options, run).process;
  state.options.memory_budget = need + prefix.bytes();
  pipeline::complete(state, canvas.talk.q, control);
  EXPECT_GT(prefix.bytes(), 0) << "there is room for both";
  --state.options.memory_budget;
  pipeline::complete(state, canvas.talk.q, control);
  EXPECT_EQ(prefix.bytes(), 0);
}

// The second request's peak of keys and values, which the dry run of `run` says.
void expect_predicted(Talk& talk, const completion::TokenRun& run, PrefixCache& prefix) {
  std::shared_ptr<tensor::MemoryTracker> memory;
  completion::PassWatch watch;
  watch.experts = [&](const nn::MoeWork&) { memory = tensor::current_scope().memory; };
  talk.q.prompt_ids = {some(21)};
  CompleteControl control;
  control.prefix = &prefix;
  const CompleteResult made = pipeline::complete(talk.state, talk.q, control, watch);
  EXPECT_EQ(made.completions[0].reused, run.kept_tokens(0));
  const auto need = admission::dry_run_tokens(talk.state, talk.options, run);
  EXPECT_EQ(memory->peak(tensor::MemoryClass::kv), need.ranks.at(0).kv);
  EXPECT_GE(need.ranks[0].kv, made.peak_bytes.kv);
  completion::TokenRun alone = run;
  alone.kept.clear();
  EXPECT_GT(need.ranks[0].kv,
            admission::dry_run_tokens(talk.state, talk.options, alone).ranks.at(0).kv);
}

TEST(PrefixCache, MemoryIsPredicted) {
  for (const int64_t second : {30, 160}) {  // the answer of the first is longer, or shorter
    Talk talk;
    talk.q.max_tokens = 120;
    PrefixCache many(1 << 30);
    for (PrefixCache* prefix : {&talk.prefix, &many}) talk.ask(some(21), prefix);
    talk.q.max_tokens = second;
    completion::TokenRun run{{(21 + second + 7) / 8 * 8}, 8, 8, {16}, true};
    run.kept = {{16, 136}};
    for (PrefixCache* prefix : {&talk.prefix, &many}) expect_predicted(talk, run, *prefix);
    CanvasTalk canvas;
    canvas.talk.q.max_tokens = 120;
    canvas.talk.ask(some(21), &canvas.talk.prefix);
    canvas.talk.q.max_tokens = second;
    completion::TokenRun canvases{{21 + (second + 7) / 8 * 8}, 8, 8, {21}, true};
    canvases.canvas = 90;
    canvases.kept = {{21, 21 + 112}};
    expect_predicted(canvas.talk, canvases, canvas.talk.prefix);
  }
}

}  // namespace
}  // namespace tessera

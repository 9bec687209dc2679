#include <cmath>
#include <functional>
#include <set>
#include <tuple>
#include <utility>

#include "engine/llada_golden.h"
#include "engine/text_model.h"
#include "tessera/engine.h"
#include "tokenizer/byte_level_bpe.h"

namespace tessera {
namespace {

Model open(const std::string& path, const std::string& plan = "") {
  RunOptions options = golden::options(Precision::f32);
  options.plan = parse_plan(plan);
  return Model::open(path, options);
}

TEST(Completion, StreamsWhatIsFinalAndEndsAtStopTexts) {
  const golden::TextModel folder("llada_moe");
  Model model = open(folder.path());
  CompleteRequest q;
  q.prompts = {"Hello"};
  q.raw = true;
  q.max_tokens = 24;
  q.block = 8;
  q.stop_at_eos = StopAtEos::none;
  std::string streamed;
  bool ended = false;
  CompleteControl control;
  control.on_progress = [&](const CompleteProgress& p) {
    streamed += p.text;
    ended = p.ended;
    EXPECT_TRUE(p.ended || p.block.size() == 8);
  };
  const Completion whole = model.complete(q, control).completions[0];
  EXPECT_EQ(whole.text.size(), 24u);
  EXPECT_EQ(streamed, whole.text);
  EXPECT_TRUE(ended);
  q.stop = {whole.text.substr(9, 3), "never there at all"};
  streamed.clear();
  const Completion cut = model.complete(q, control).completions[0];
  EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(q.stop[0])));
  EXPECT_EQ(streamed, cut.text);
  EXPECT_EQ(cut.finish, FinishReason::stop);
  EXPECT_LT(cut.passes.size(), whole.passes.size());
}

TEST(Completion, AStreamNeverSplitsACharacter) {
  const golden::TextModel folder("llada_moe");
  base::Json vocab;  // pieces of two-byte characters: C3 and A9 in every order
  std::vector<std::string> pieces{""};
  for (size_t i = 0; vocab.size() < 92; ++i) {
    for (const char* half : {"\u00c3", "\u00a9"}) {
      pieces.push_back(pieces[i] + half);
      if (vocab.size() < 92) vocab[pieces.back()] = vocab.size();
    }
  }
  base::Json file = base::read_json(folder.path("tokenizer.json"));
  file["model"]["vocab"] = vocab;
  folder.write("tokenizer.json", file.dump());
  Model model = open(folder.path());
  for (int32_t first : {1, 20, 55}) {
    CompleteRequest q;
    q.prompt_ids = {{first, 7}};
    q.max_tokens = 32;
    q.block = 8;
    q.stop_at_eos = StopAtEos::none;
    std::string streamed;
    CompleteControl control;
    control.on_progress = [&](const CompleteProgress& p) {
      EXPECT_EQ(tokenizer::whole_characters(p.text), p.text.size());
      streamed += p.text;
    };
    const Completion made = model.complete(q, control).completions[0];
    EXPECT_FALSE(made.text.empty());
    EXPECT_EQ(streamed, made.text);
    EXPECT_NO_THROW(base::Json(made.text).dump());  // UTF-8
  }
}

TEST(Completion, ABatchIsItsPromptsAlone) {
  const golden::TextModel folder("llada2");
  Model model = open(folder.path());
  CompleteRequest q;
  q.max_tokens = 20;
  q.select = "des-vote:0.5";
  q.prompts = {"a", "Some words", "and a third, longer than the others"};
  const CompleteResult all = model.complete(q);
  for (size_t i = 0; i < 3; ++i) {
    CompleteRequest one = q;
    one.prompts = {q.prompts[i]};
    const Completion alone = model.complete(one).completions[0];
    EXPECT_EQ(alone.ids, all.completions[i].ids);
    EXPECT_EQ(alone.passes.size(), all.completions[i].passes.size());
  }
  for (const auto& pass : all.completions[0].passes) EXPECT_EQ(pass.experts.size(), 2u);
}

// Which prompts are asked before each pass, by number; the first ones are the request's.
CompleteResult joined(const Model& model, CompleteRequest q, const std::vector<std::string>& words,
                      size_t first, std::vector<int>& order) {
  std::vector<std::vector<int32_t>> ids;
  for (const Tokenized& one : model.tokenize({.prompts = words, .chat = "", .raw = q.raw}))
    ids.push_back(one.ids);
  q.prompt_ids.assign(ids.begin(), ids.begin() + static_cast<int64_t>(first));
  CompleteControl control;
  size_t given = first;
  int pass = 0;
  control.join = [&] {
    std::vector<std::vector<int32_t>> more;
    if (++pass % 3 == 0 && given < ids.size()) more.push_back(ids[given++]);
    return more;
  };
  control.on_answer = [&](int answer, const CompleteResult& now) {
    order.push_back(answer);
    EXPECT_FALSE(now.completions.at(static_cast<size_t>(answer)).text.empty());
    EXPECT_GT(now.forwards, 0);
  };
  return model.complete(q, control);
}

TEST(Completion, PromptsThatJoinABatchHaveTheBitsOfEachAlone) {
  const std::vector<std::string> words{"a", "Some words", "and a third, longer than the others",
                                       "b", "one more"};
  for (const auto& [name, cache, plan] : {std::tuple{"llada_moe", KvCache::dual, ""},
                                          {"llada_moe", KvCache::prefix, ""},
                                          {"llada_moe", KvCache::none, ""},
                                          {"llada2", KvCache::block, ""},
                                          {"llada2", KvCache::block, "expert=2"},
                                          {"llada2", KvCache::block, "tensor=2"},
                                          {"llada_moe", KvCache::dual, "expert=3"},
                                          {"llada_moe", KvCache::prefix, "tensor=2"},
                                          {"llada_moe", KvCache::none, "expert=4"}}) {
    SCOPED_TRACE(name + std::string(" ") + plan);
    const golden::TextModel folder(name);
    const Model model = open(folder.path(), plan);
    CompleteRequest q;
    q.max_tokens = 20;
    q.raw = true;
    q.cache.kind = cache;
    std::vector<int> order;
    const CompleteResult all = joined(model, q, words, 2, order);
    ASSERT_EQ(all.completions.size(), words.size());
    std::set<int> ended(order.begin(), order.end());
    EXPECT_EQ(ended.size(), words.size());
    for (size_t i = 0; i < words.size(); ++i) {
      CompleteRequest one = q;
      one.prompts = {words[i]};
      const Completion alone = model.complete(one).completions[0];
      EXPECT_EQ(all.completions[i].ids, alone.ids) << words[i];
      EXPECT_EQ(all.completions[i].confidences, alone.confidences);
      EXPECT_EQ(all.completions[i].text, alone.text);
      EXPECT_EQ(all.completions[i].passes.size(), alone.passes.size());
    }
  }
}

TEST(Completion, APromptJoinsWhenItFitsIntoMemory) {
  const golden::TextModel folder("llada_moe");
  CompleteRequest q;
  q.max_tokens = 16;
  q.raw = true;
  q.prompts = {"abcdefgh"};
  RunOptions options = golden::options(Precision::f32);
  options.memory_budget =
      Model::open(folder.path(), options).complete(q).peak_bytes.total * 21 / 20;
  q.prompts.clear();
  std::vector<int> order;
  const Model small = Model::open(folder.path(), options);
  const CompleteResult all = joined(small, q, {"abcdefgh", "ijklmnop", "qrstuvwx"}, 1, order);
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
  EXPECT_LE(all.peak_bytes.total, options.memory_budget);
  size_t passes = 0;
  for (const Completion& one : all.completions) passes += one.passes.size();
  EXPECT_EQ(static_cast<int64_t>(passes), all.forwards) << "one after the other";
}

TEST(Completion, WhatCannotJoinIsRefused) {
  const golden::TextModel folder("llada_moe");
  RunOptions options = golden::options(Precision::f32);
  const auto refused = [&](CompleteRequest q, std::vector<std::vector<int32_t>> more) {
    CompleteControl control;
    control.join = [&] { return std::exchange(more, {}); };
    q.prompts = {"Hello"};
    q.max_tokens = 8;
    try {
      Model::open(folder.path(), options).complete(q, control);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::usage) << e.what();
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(refused({}, {{}}).find("holds no token"), std::string::npos);
  CompleteRequest several;
  several.n = 2;
  several.temperature = 1;
  EXPECT_NE(refused(several, {}).find("--n 2"), std::string::npos);
  options.plan = parse_plan("expert=2,moe=fused");
  EXPECT_NE(refused({}, {}).find("moe=fused"), std::string::npos);
  options.plan = parse_plan("tensor=2");
  EXPECT_NE(refused({}, {{}}).find("holds no token"), std::string::npos);
}

int64_t most(const Completion::Pass& pass) {
  return *std::max_element(pass.experts.begin(), pass.experts.end());
}

TEST(Completion, PassesThatCommitTokensAreUnderTheRule) {
  Model moe = open(golden::LladaCase("llada_moe").folder + "/model");
  CompleteRequest q;
  q.prompt_ids = {{1, 2, 3}};
  q.max_tokens = 24;
  q.block = 8;
  q.stop_at_eos = StopAtEos::none;
  q.select = "des-vote:0.25";
  for (const char* cache : {"none", "prefix", "dual", "vicinity:4,4,1"}) {
    q.cache = parse_cache(cache);
    const CompleteResult result = moe.complete(q);
    EXPECT_EQ(ruled_share(result), 1) << cache;
    for (const auto& pass : result.completions[0].passes) {
      EXPECT_TRUE(pass.ruled);
      EXPECT_LE(most(pass), 4) << cache << " " << word_of(pass.kind);  // a quarter of 16
    }
  }
  q.cache = {KvCache::dual};
  q.select_refresh = false;
  const CompleteResult before = moe.complete(q);
  EXPECT_LT(ruled_share(before), 1);
  for (const auto& pass : before.completions[0].passes) {
    EXPECT_EQ(pass.ruled, pass.kind != PassKind::refresh);
    EXPECT_EQ(most(pass) <= 4, pass.ruled);
  }
  Model two = open(golden::LladaCase("llada2").folder + "/model");
  q.cache = {};
  q.select_refresh = true;
  q.prompt_ids = {std::vector<int32_t>(11, 5)};
  for (const bool prefill : {false, true}) {
    q.select_prefill = prefill;
    const CompleteResult result = two.complete(q);
    EXPECT_EQ(ruled_share(result), 1);
    for (const auto& pass : result.completions[0].passes)
      EXPECT_EQ(pass.ruled, prefill || pass.kind == PassKind::block) << word_of(pass.kind);
  }
}

TEST(Completion, ConfidencesAreThoseOfTheThreshold) {
  Model model = open(golden::LladaCase("llada2").folder + "/model");
  CompleteRequest q;
  q.prompt_ids = {{1, 2, 3}};
  q.max_tokens = 13;
  q.block = 8;
  q.decode = "steps:1";  // a pass fills the block: what it commits is the arg max of that pass
  q.stop_at_eos = StopAtEos::none;
  const Completion all = model.complete(q).completions[0];
  ASSERT_EQ(all.confidences.size(), 13u);
  q.decode = "steps:8";  // one at a time, the surest first: no first commit is less sure
  const Completion slow = model.complete(q).completions[0];
  const double first = *std::max_element(all.confidences.begin(), all.confidences.begin() + 5);
  const double best = *std::max_element(slow.confidences.begin(), slow.confidences.begin() + 5);
  EXPECT_GE(best, first - 1e-6);
}

TEST(Completion, ARuleAboveTheModelsExpertsIsSaid) {
  Model model = open(golden::LladaCase("llada_moe").folder + "/model");
  CompleteRequest q;
  q.prompt_ids = {{1, 2, 3}};
  q.max_tokens = 4;
  std::vector<std::string> notes;
  CompleteControl control;
  control.on_note = [&](const std::string& note) { notes.push_back(note); };
  for (const char* rule : {"vanilla", "topk:4", "des-seq:2", "des-vote:0.5,k=4"}) {
    q.select = rule;
    model.complete(q, control);
    EXPECT_TRUE(notes.empty()) << rule;
  }
  for (const char* rule : {"topk:5", "des-seq:5", "des-vote:0.5,k=5"}) {
    notes.clear();
    q.select = rule;
    model.complete(q, control);
    ASSERT_EQ(notes.size(), 1u) << rule;
    EXPECT_NE(notes[0].find("up to 5 experts, more than the 4"), std::string::npos) << notes[0];
  }
}

TEST(Completion, BadInputIsOneLineThatNamesIt) {
  Model model = open(golden::LladaCase("llada_moe").folder + "/model");
  const auto refused = [&](auto change) {
    CompleteRequest q;
    q.prompt_ids = {{1, 2, 3}};
    q.max_tokens = 8;
    change(q);
    std::string message = golden::error_of([&] { model.complete(q); });
    EXPECT_EQ(message.find('\n'), std::string::npos);
    return message;
  };
  EXPECT_EQ(refused([](CompleteRequest&) {}), "");
  const auto has = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  has(refused([](auto& q) { q.prompt_ids.clear(); }), "no prompt");
  has(refused([](auto& q) { q.prompt_ids = {{96}}; }), "vocabulary of 96");
  has(refused([](auto& q) { q.prompt_ids = {{1, 95}}; }), "mask token 95");
  has(refused([](auto& q) { q.max_tokens = 300; }), "context of 256");
  has(refused([](auto& q) { q.max_tokens = -1; }), "--max-tokens -1: expected a number from 0");
  has(refused([](auto& q) { q.prompts = {""}; }), "--prompt ''");
  has(refused([](auto& q) { q.prompt_ids.push_back({}); }), "prompt 1 holds no token");
  has(refused([](auto& q) { q.block = 500; }), "block of 500");
  has(refused([](auto& q) { q.cache = {KvCache::block}; }), "bidirectional");
  has(refused([](auto& q) { q.select = "topk:17"; }), "the model has 16");
  has(refused([](auto& q) { q.select = "des-vote:0.01"; }), "leaves no expert");
  has(refused([](auto& q) {
        q.decode = "steps:4";
        q.steps = 3;
      }),
      "contradict");
  has(refused([](auto& q) {
        q.decode = "factor:1";
        q.steps = 3;
      }),
      "schedule");
  has(refused([](auto& q) { q.prompts = {"text"}; }), "tokenizer.json");
  has(refused([](auto& q) { q.chat = "[]"; }), "no chat template");
  has(refused([](auto& q) { q.stop = {"x"}; }), "tokenizer.json");
  has(refused([](auto& q) { q.temperature = -1; }), "temperature");
}

TEST(Completion, ACheckRefusesTheMemoryThatARunDoes) {
  const golden::TextModel folder("llada_moe");
  RunOptions options = golden::options(Precision::f32);
  options.memory_budget = 1000;
  const Model model = Model::open(folder.path(), options);
  CompleteRequest q;
  q.prompts = {"Hello"};
  q.max_tokens = 8;
  for (const auto& ask : {std::function<void()>([&] { model.check(q); }),
                          std::function<void()>([&] { model.complete(q); })})
    try {
      ask();
      ADD_FAILURE() << "nothing was refused";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::memory) << e.what();
    }
}

TEST(Completion, SeveralAnswersAreThoseOfTheirSeeds) {
  Model model = open(golden::LladaCase("llada_moe").folder + "/model");
  CompleteRequest q;
  q.prompt_ids = {{1, 2, 3}, {4, 5}};
  q.max_tokens = 8;
  q.stop_at_eos = StopAtEos::none;
  q.temperature = 3;
  q.top_k = 40;
  q.top_p = 0.95;
  q.repetition_penalty = 1.2;
  q.seed = 7;
  q.n = 2;
  const auto all = model.complete(q).completions;
  ASSERT_EQ(all.size(), 4u);
  EXPECT_NE(all[0].ids, all[1].ids);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].prompt, int(i / 2));
    CompleteRequest alone = q;
    alone.n = 1;
    alone.prompt_ids = {q.prompt_ids[i / 2]};
    alone.seed = 7 + i % 2;
    EXPECT_EQ(all[i].seed, alone.seed);
    EXPECT_EQ(model.complete(alone).completions.at(0).ids, all[i].ids) << i;
  }
}

TEST(Completion, APenaltyLeavesFewerRepetitions) {
  Model model = open(golden::LladaCase("llada_moe").folder + "/model");
  CompleteRequest q;
  q.prompt_ids = {{1, 2, 3}};
  q.max_tokens = 32;
  q.block = 8;
  q.decode = "steps:8";  // one token a pass: each sees all others
  q.stop_at_eos = StopAtEos::none;
  q.repetition_penalty = 100;
  const auto ids = model.complete(q).completions.at(0).ids;
  q.repetition_penalty = 0.01;
  const auto again = model.complete(q).completions.at(0).ids;
  EXPECT_GT(std::set<int32_t>(ids.begin(), ids.end()).size(),
            std::set<int32_t>(again.begin(), again.end()).size());
}

TEST(Completion, LogProbabilitiesAreTheModels) {
  Model model = open(golden::LladaCase("llada2").folder + "/model");
  CompleteRequest q;
  q.prompt_ids = {{1, 2, 3}};
  q.max_tokens = 8;
  q.stop_at_eos = StopAtEos::none;
  EXPECT_TRUE(model.complete(q).completions.at(0).logprobs.empty());
  q.logprobs = 3;
  const Completion greedy = model.complete(q).completions.at(0);
  ASSERT_EQ(greedy.logprobs.size(), greedy.ids.size());
  for (size_t i = 0; i < greedy.ids.size(); ++i) {
    const auto& said = greedy.logprobs[i];
    EXPECT_EQ(said.token.id, greedy.ids[i]);
    EXPECT_NEAR(said.token.logprob, std::log(greedy.confidences[i]), 1e-9);
    ASSERT_EQ(said.top.size(), 3u);
    EXPECT_EQ(said.top[0].id, greedy.ids[i]);  // the likeliest
    EXPECT_GE(said.top[0].logprob, said.top[1].logprob);
    EXPECT_GE(said.top[1].logprob, said.top[2].logprob);
  }
}

TEST(Completion, ModelsWithRoutingOfTheirOwnTakeNoOther) {
  Model model = open(golden::LladaCase("llada22_block_routing").folder + "/model");
  CompleteRequest q;
  q.prompt_ids = {{1, 2, 3}};
  q.max_tokens = 8;
  EXPECT_EQ(model.complete(q).select, "block:5,8");
  EXPECT_EQ(ruled_share(model.complete(q)), 1);
  const auto refused = [&] { return golden::error_of([&] { model.complete(q); }); };
  q.select = "des-max:0.5";
  EXPECT_NE(refused().find("in this model's own way (block:5,8)"), std::string::npos);
  q.select = "vanilla";
  for (bool* const passes : {&q.select_refresh, &q.select_prefill}) {
    *passes = !*passes;
    EXPECT_NE(refused().find("--select-refresh and --select-prefill say"), std::string::npos);
    *passes = !*passes;
  }
  q.block = 12;
  EXPECT_NE(refused().find("among 8 tokens; choose a multiple"), std::string::npos);
}

TEST(Completion, EditedBlocksAreStreamedWhenTheySettle) {
  Model model = open(golden::LladaCase("llada21_editing").folder + "/model");
  CompleteRequest q;
  q.prompt_ids = {{68, 66, 58, 31, 42, 43, 36, 32, 63}};
  q.max_tokens = 20;
  q.decode = "edit:0.65,0.45,12";
  q.stop_at_eos = StopAtEos::none;
  const CompleteResult made = model.complete(q);
  EXPECT_EQ(made.decode, q.decode);
  EXPECT_EQ(made.completions[0].ids,
            (std::vector<int32_t>{69, 40, 8,  76, 75, 35, 13, 35, 45, 3,
                                  32, 51, 28, 71, 47, 39, 63, 51, 71, 32}));
  EXPECT_EQ(made.completions[0].passes.size(), 58u);
}

TEST(Completion, AnUnknownLanguageModelIsNamed) {
  const golden::TextModel folder("llada_moe");
  folder.write("config.json", R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"]})");
  EXPECT_NE(golden::error_of([&] { open(folder.path()); }).find("LlamaForCausalLM"),
            std::string::npos);
}

TEST(Completion, Int8ExpertsChangeValuesButNotHowExpertsAreChosen) {
  for (const char* name : {"llada_moe", "llada2"}) {
    const std::string folder = golden::LladaCase(name).folder + "/model";
    CompleteRequest q;
    q.prompt_ids = {{5, 17, 30, 2}, {8}};
    q.max_tokens = 12;
    q.block = 8;
    q.select = "des-vote:0.5";
    q.stop_at_eos = StopAtEos::none;
    const auto run = [&](bool int8, const std::string& plan) {
      RunOptions options = golden::options(int8 ? Precision::int8 : Precision::bf16);
      options.plan = parse_plan(plan);
      return Model::open(folder, options).complete(q);
    };
    const CompleteResult whole = run(false, ""), small = run(true, "");
    EXPECT_NE(small.bytes_read, whole.bytes_read);  // half, in models wider than a panel's step
    // The first layer's router has seen no expert yet.
    EXPECT_EQ(small.completions[0].passes[0].experts[0], whole.completions[0].passes[0].experts[0]);
    const CompleteResult split = run(true, "expert=3");
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(split.completions[i].ids, small.completions[i].ids);
    EXPECT_EQ(split.experts_read, small.experts_read);
  }
}

}  // namespace
}  // namespace tessera

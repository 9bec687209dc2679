#include "completion/options.h"

#include <gtest/gtest.h>

#include "tessera/engine.h"
#include "whole/llada_golden.h"
#include "whole/text_model.h"

namespace tessera {
namespace {

Model open(const std::string& path, const std::string& plan = "") {
  RunOptions options = golden::options(Precision::f32);
  options.plan = parse_plan(plan);
  return Model::open(path, options);
}

int64_t most(const Completion::Pass& pass) {
  return *std::max_element(pass.experts.begin(), pass.experts.end());
}

TEST(CompleteOptions, PassesThatCommitTokensAreUnderTheRule) {
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

TEST(CompleteOptions, ARuleAboveTheModelsExpertsIsSaid) {
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

TEST(CompleteOptions, WhatHasNoEffectIsSaid) {
  golden::TextModel folder("llada_moe");
  Model model = open(folder.path());
  CompleteRequest q;
  q.max_tokens = 4;
  std::string notes;
  CompleteControl control;
  control.on_note = [&](const std::string& note) { notes += note; };
  const auto noted = [&](const CompleteRequest& request) {
    notes.clear();
    model.complete(request, control);
    return notes;
  };
  q.prompts = {"ab"};
  q.raw = true;
  EXPECT_EQ(noted(q), "");
  q.seed = 5;
  EXPECT_TRUE(noted(q).starts_with("`seed` has no effect: at temperature 0")) << notes;
  q.temperature = 1;
  EXPECT_EQ(noted(q), "");
  q.prompts.clear();
  q.prompt_ids = {{1, 2}};
  EXPECT_TRUE(noted(q).starts_with("`raw` has no effect")) << notes;
}

TEST(CompleteOptions, ModelsWithRoutingOfTheirOwnTakeNoOther) {
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
    EXPECT_NE(refused().find("`select_refresh` and `select_prefill` say"), std::string::npos);
    *passes = !*passes;
  }
  q.block = 12;
  EXPECT_NE(refused().find("among 8 tokens; choose a multiple"), std::string::npos);
}

}  // namespace
}  // namespace tessera

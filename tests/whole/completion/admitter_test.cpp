#include "completion/admitter.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>
#include <utility>

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

// The prompts to add before each pass, by number; the first prompts belong to the request.
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

TEST(Admitter, PromptsThatJoinABatchHaveTheBitsOfEachAlone) {
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

TEST(Admitter, APromptJoinsWhenItFitsIntoMemory) {
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

TEST(Admitter, WhatCannotJoinIsRefused) {
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
  EXPECT_NE(refused(several, {}).find("`n` 2"), std::string::npos);
  options.plan = parse_plan("expert=2,moe=fused");
  EXPECT_NE(refused({}, {}).find("moe=fused"), std::string::npos);
  options.plan = parse_plan("tensor=2");
  EXPECT_NE(refused({}, {{}}).find("holds no token"), std::string::npos);
}

}  // namespace
}  // namespace tessera

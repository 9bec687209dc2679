#include "pipeline/complete.h"

#include <gtest/gtest.h>

#include <functional>

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

TEST(Complete, BadInputIsOneLineThatNamesIt) {
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
  has(refused([](auto& q) { q.max_tokens = -1; }), "`max_tokens` -1: expected a number from 1");
  has(refused([](auto& q) { q.prompts = {""}; }), "`prompt` ''");
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

TEST(Complete, ACheckRefusesTheMemoryThatARunDoes) {
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

TEST(Complete, AnUnknownLanguageModelIsNamed) {
  const golden::TextModel folder("llada_moe");
  folder.write("config.json", R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"]})");
  EXPECT_NE(golden::error_of([&] { open(folder.path()); }).find("LlamaForCausalLM"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera

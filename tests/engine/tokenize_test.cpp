#include "tessera/tokenize.h"

#include "base/json.h"
#include "base/stop.h"
#include "test_paths.h"
#include "whole/text_model.h"

namespace tessera {
namespace {

TEST(Tokenize, ALanguageModelsPromptIsWhatARunWouldSee) {
  const golden::TextModel folder("llada_moe");
  const Model model = Model::open(folder.path(), golden::options(Precision::f32));
  const auto raw = model.tokenize({.prompts = {"Hi"}, .raw = true});
  ASSERT_EQ(raw.size(), 1u);
  EXPECT_EQ(raw[0].ids, (std::vector<int32_t>{'H' - 32, 'i' - 32}));
  EXPECT_EQ(raw[0].pieces, (std::vector<std::string>{"H", "i"}));
  EXPECT_EQ(raw[0].length, 0);
  const auto all = model.tokenize(
      {.prompts = {"Hi<|mask|>"}, .chat = R"([{"role": "user", "content": "Hi<|mask|>"}])"});
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].ids, all[1].ids);
  EXPECT_EQ(all[0].pieces,
            (std::vector<std::string>{"u", ":", "H", "i", "<|mask|>", ";", "a", ":"}));
  EXPECT_EQ(base::Json::parse(to_json(all)).at(1).at("ids").size(), 8u);
}

TEST(Tokenize, APipelinesTokenizersGiveTheReferencesIds) {
  const std::string data = TESSERA_TEST_DATA "/diffusers/";
  for (const char* name : {"cogvideox_2b"}) {
    const Model model = Model::open(data + name + "/model", golden::options(Precision::f32));
    const base::Json golden = base::read_json(data + name + "/tokenize.json").at("tokenizers");
    for (const auto& [tokenizer, about] : golden.items()) {
      int seen = 0;
      for (const auto& one : about.at("cases")) {
        if (one.at("level") != "core" || ++seen > 8) continue;
        const std::string text = one.at("text");
        const auto made = model.tokenize({.prompts = {text}, .tokenizer = tokenizer});
        ASSERT_EQ(made.size(), 1u) << name;
        auto ids = one.at("ids").get<std::vector<int32_t>>();
        EXPECT_EQ(made[0].length, static_cast<int64_t>(ids.size()));
        ids.resize(one.at("mask_ones").get<size_t>());
        EXPECT_EQ(made[0].ids, ids) << name << ' ' << tokenizer << ": " << text;
        EXPECT_EQ(made[0].pieces.size(), ids.size());
        for (const std::string& piece : made[0].pieces) EXPECT_FALSE(piece.empty());
      }
      EXPECT_GE(seen, 3) << name << ' ' << tokenizer;
    }
  }
}

TEST(Tokenize, HeedsItsOwnStopAlone) {
  std::stop_source stopped;
  stopped.request_stop();
  const golden::TextModel folder("llada_moe");
  const Model model = Model::open(folder.path(), golden::options(Precision::f32));
  const base::BindStop around(stopped.get_token());
  EXPECT_EQ(model.tokenize({.prompts = {"Hi"}}).size(), 1u);
  EXPECT_THROW(model.tokenize({.prompts = {"Hi"}}, stopped.get_token()), Error);
}

TEST(Tokenize, NamesWhatDoesNotFit) {
  const golden::TextModel folder("llada_moe");
  const auto said = [](const std::string& path, const TokenizeRequest& request) {
    return golden::error_of(
        [&] { Model::open(path, golden::options(Precision::f32)).tokenize(request); });
  };
  const auto has = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  const std::string cog = TESSERA_TEST_DATA "/diffusers/cogvideox_2b/model";
  has(said(folder.path(), {}), "there is no text");
  has(said(folder.path(), {.prompts = {"x"}, .tokenizer = "tokenizer_2"}), "one tokenizer");
  has(said(cog, {.prompts = {"x"}, .tokenizer = "tokenizer_2"}), "it has: tokenizer");
  has(said(cog, {.prompts = {"x"}, .raw = true}), "no language model");
  has(said(TESSERA_TEST_DATA "/moe/dit_moe_flash/model", {.prompts = {"x"}}), "no tokenizer");
}

}  // namespace
}  // namespace tessera

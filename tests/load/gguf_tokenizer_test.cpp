#include "load/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include "gguf_metadata.h"
#include "scratch_folder.h"

namespace tessera::load {
namespace {

using base::Json;

GgufKeys keys_in(const ScratchFolder& scratch, const Metadata& keys) {
  GgufImage image;
  image.architecture("x");
  write_keys(keys, image);
  scratch.write("x.gguf", image.bytes());
  return GgufKeys(scratch.path("x.gguf"));
}

Metadata byte_level() {
  return {{"tokenizer.ggml.model", "gpt2"},
          {"tokenizer.ggml.pre", "llada-moe"},
          {"tokenizer.ggml.tokens", {"a", "b", "ab", "<s>", "[PAD4]", "own token"}},
          {"tokenizer.ggml.token_type", {1, 1, 1, 3, 5, 4}},
          {"tokenizer.ggml.merges", {"a b"}},
          {"tokenizer.ggml.bos_token_id", 3}};
}

TEST(GgufTokenizer, ByteLevel) {
  const ScratchFolder scratch;
  const Json json = gguf_tokenizer(keys_in(scratch, byte_level()));
  EXPECT_EQ(json.at("model").at("vocab"), Json({{"a", 0}, {"b", 1}, {"ab", 2}}));
  EXPECT_EQ(json.at("model").at("merges"), Json::array({{"a", "b"}}));
  EXPECT_EQ(json.at("added_tokens"),
            Json::array({{{"id", 3}, {"content", "<s>"}, {"special", true}},
                         {{"id", 5}, {"content", "own token"}, {"special", false}}}));
  const Json& pieces = json.at("pre_tokenizer").at("pretokenizers");
  EXPECT_EQ(pieces.at(0).at("type"), "Split");
  EXPECT_EQ(pieces.at(1).at("type"), "ByteLevel");
  EXPECT_FALSE(json.contains("post_processor"));
  Metadata keys = byte_level();
  keys["tokenizer.ggml.add_bos_token"] = true;
  EXPECT_EQ(gguf_tokenizer(keys_in(scratch, keys)).at("post_processor"),
            Json({{"type", "TemplateProcessing"},
                  {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
                  {"special_tokens", {{"<s>", {{"ids", Json::array({3})}}}}}}));
}

TEST(GgufTokenizer, CharactersWithByteFallback) {
  const ScratchFolder scratch;
  Metadata keys = byte_level();
  keys["tokenizer.ggml.model"] = "gemma4";
  keys.erase("tokenizer.ggml.pre");
  keys["tokenizer.ggml.unknown_token_id"] = 0;
  const Json json = gguf_tokenizer(keys_in(scratch, keys));
  EXPECT_EQ(json.at("model").at("vocab").size(), 6u) << "with its special tokens";
  EXPECT_EQ(json.at("model").at("unk_token"), "a");
  EXPECT_EQ(json.at("model").at("byte_fallback"), true);
  EXPECT_EQ(json.at("normalizer").at("content"), "\u2581");
  EXPECT_EQ(json.at("post_processor").at("single").size(), 2u) << "<bos> by default";
}

TEST(GgufTokenizer, ConfigHoldsSpecialTokensAndTemplates) {
  const ScratchFolder scratch;
  Metadata keys = byte_level();
  keys["tokenizer.ggml.mask_token_id"] = 5;
  keys["tokenizer.chat_template"] = "usual";
  EXPECT_EQ(gguf_tokenizer_config(keys_in(scratch, keys)),
            Json({{"bos_token", "<s>"}, {"mask_token", "own token"}, {"chat_template", "usual"}}));
  keys["tokenizer.chat_template.tool_use"] = "tools";
  EXPECT_EQ(gguf_tokenizer_config(keys_in(scratch, keys)).at("chat_template").at(1),
            Json({{"name", "tool_use"}, {"template", "tools"}}));
  EXPECT_TRUE(gguf_tokenizer(keys_in(scratch, {})).is_null());
  EXPECT_EQ(gguf_tokenizer_config(keys_in(scratch, {})), Json::object());
}

TEST(GgufTokenizer, RefusalsNameTheKeyOrToken) {
  const ScratchFolder scratch;
  const auto error = [&](const char* key, const Json& value) {
    Metadata keys = byte_level();
    keys[key] = value;
    if (value.is_null()) keys.erase(key);
    const GgufKeys read = keys_in(scratch, keys);
    return model_error([&] {
      (void)gguf_tokenizer(read);
      (void)gguf_tokenizer_config(read);
    });
  };
  expect_says(error("tokenizer.ggml.model", "llama"), "tokenizer.ggml.model' is \"llama\"");
  expect_says(error("tokenizer.ggml.pre", "gpt-2"), "tokenizer.ggml.pre' is \"gpt-2\"");
  for (const char* key : {"tokenizer.ggml.pre", "tokenizer.ggml.tokens",
                          "tokenizer.ggml.token_type", "tokenizer.ggml.merges"})
    expect_says(error(key, nullptr), std::string("the metadata lack '") + key);
  expect_says(error("tokenizer.ggml.tokens", {"a", "b", "a", "c", "d", "e"}), "'a' is there twice");
  expect_says(error("tokenizer.ggml.tokens", {1, 2, 3, 4, 5, 6}), "token 0 has no text");
  expect_says(error("tokenizer.ggml.token_type", {1, 1}), "one for each of 6 tokens");
  for (const char* merge : {"ab", "a ", ""})
    expect_says(error("tokenizer.ggml.merges", Json::array({merge})), "is not of two tokens");
  expect_says(error("tokenizer.ggml.bos_token_id", 6), "expected the id of a token");
  expect_says(error("tokenizer.ggml.add_bos_token", 1), "add_bos_token' is 1");
  expect_says(error("tokenizer.chat_template", 3), "tokenizer.chat_template' is 3");
}

}  // namespace
}  // namespace tessera::load

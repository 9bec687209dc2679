#include "load/gguf_tokenizer.h"

#include <string>
#include <utility>

#include "base/fail.h"
#include "base/printable.h"
#include "base/stop.h"

namespace tessera::load {
namespace {

using base::Json;

// Types of tokens.
enum : int64_t { kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5 };

const char* const kTokens = "tokenizer.ggml.tokens";
const char* const kMerges = "tokenizer.ggml.merges";
const char* const kTypes = "tokenizer.ggml.token_type";

// Words of Ling and LLaDA: each digit alone, letters with one character before them.
const char* const kLingWords =
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}|"
    " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";

// Special tokens: key of the file, key of tokenizer_config.json.
constexpr std::pair<const char*, const char*> kSpecial[] = {
    {"bos", "bos_token"},       {"eos", "eos_token"},     {"unknown", "unk_token"},
    {"seperator", "sep_token"}, {"padding", "pad_token"}, {"mask", "mask_token"}};

const Json& list_of(const GgufKeys& keys, const char* key, size_t size) {
  const Json& list = keys.at(key);
  if (!list.is_array() || (size > 0 && list.size() != size))
    keys.refuse_file(fmt::format("{} holds {} values; expected one for each of {} tokens", key,
                                 list.size(), size));
  return list;
}

// A token's text by the key of its id; "": none.
std::string token_of(const GgufKeys& keys, const std::string& name) {
  const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
  if (keys.find(key).is_null()) return "";
  const auto id = static_cast<size_t>(keys.whole(key));
  const Json& tokens = list_of(keys, kTokens, 0);
  if (id >= tokens.size() || !tokens[id].is_string()) keys.refuse(key, "the id of a token");
  return tokens[id].get<std::string>();
}

// Vocabulary and added tokens. Byte-level files spell only the vocabulary in characters for bytes,
// so their added tokens are no part of it.
void add_tokens(const GgufKeys& keys, bool byte_level, Json& tokenizer) {
  const Json& tokens = list_of(keys, kTokens, 0);
  const Json& types = list_of(keys, kTypes, tokens.size());
  Json vocabulary = Json::object(), added = Json::array();
  for (size_t id = 0; id < tokens.size(); ++id) {
    base::check_stop();
    if (!tokens[id].is_string() || !types[id].is_number_integer())
      keys.refuse_file(fmt::format("token {} has no text or no type", id));
    const std::string& text = tokens[id].get_ref<const std::string&>();
    const auto type = types[id].get<int64_t>();
    const bool special = type == kControl || type == kUnknown;
    if (type == kUnused && byte_level) continue;  // fills a gap in the ids
    if (special || type == kUserDefined)
      added.push_back({{"id", id}, {"content", text}, {"special", special}});
    if (byte_level && (special || type == kUserDefined)) continue;
    if (!vocabulary.emplace(text, id).second)
      keys.refuse_file(fmt::format("the token {} is there twice", base::printable(text)));
  }
  tokenizer["model"]["vocab"] = std::move(vocabulary);
  tokenizer["added_tokens"] = std::move(added);
}

// A merge is two tokens with a space between; the first has at least one character.
Json merges_of(const GgufKeys& keys) {
  Json merges = Json::array();
  for (const Json& merge : list_of(keys, kMerges, 0)) {
    base::check_stop();
    const std::string text = merge.is_string() ? merge.get<std::string>() : "";
    const size_t space = text.find(' ', 1);
    if (space == std::string::npos || space + 1 == text.size())
      keys.refuse_file(fmt::format("the merge {} is not of two tokens", base::printable(text)));
    merges.push_back({text.substr(0, space), text.substr(space + 1)});
  }
  return merges;
}

// Tokens around a text outside a chat.
void add_surroundings(const GgufKeys& keys, bool usual, Json& tokenizer) {
  keys.expect("tokenizer.ggml.add_bos_token", {true, false});
  keys.expect("tokenizer.ggml.add_eos_token", {false, true});
  const auto one = [&](const char* name, bool missing) -> std::string {
    const Json& says = keys.find(fmt::format("tokenizer.ggml.add_{}_token", name));
    std::string token = token_of(keys, name);
    if (token.empty() || !(says.is_null() ? missing : says.get<bool>())) return "";
    const Json& id = keys.at(fmt::format("tokenizer.ggml.{}_token_id", name));
    tokenizer["post_processor"]["special_tokens"][token] = {{"ids", Json::array({id})}};
    return token;
  };
  const std::string before = one("bos", usual), behind = one("eos", false);
  if (before.empty() && behind.empty()) return;
  Json single = Json::array();
  if (!before.empty()) single.push_back({{"SpecialToken", {{"id", before}}}});
  single.push_back({{"Sequence", {{"id", "A"}}}});
  if (!behind.empty()) single.push_back({{"SpecialToken", {{"id", behind}}}});
  tokenizer["post_processor"]["type"] = "TemplateProcessing";
  tokenizer["post_processor"]["single"] = std::move(single);
}

Json byte_level_pieces() {
  return {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"}, {"pattern", {{"Regex", kLingWords}}}, {"behavior", "Isolated"}},
            {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
}

// Spaces are U+2581, and each ends a piece with them.
void add_characters(const GgufKeys& keys, Json& tokenizer) {
  const Json space{{"String", " "}}, mark{{"String", "\u2581"}};
  tokenizer["normalizer"] = {{"type", "Replace"}, {"pattern", space}, {"content", "\u2581"}};
  tokenizer["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", space}, {"behavior", "MergedWithPrevious"}};
  tokenizer["decoder"] = {{"type", "Sequence"},
                          {"decoders",
                           {{{"type", "Replace"}, {"pattern", mark}, {"content", " "}},
                            {{"type", "ByteFallback"}},
                            {{"type", "Fuse"}}}}};
  tokenizer["model"]["byte_fallback"] = tokenizer["model"]["fuse_unk"] = true;
  if (const std::string unknown = token_of(keys, "unknown"); !unknown.empty())
    tokenizer["model"]["unk_token"] = unknown;
}

}  // namespace

Json gguf_tokenizer(const GgufKeys& keys) {
  if (keys.find("tokenizer.ggml.model").is_null()) return nullptr;
  keys.expect("tokenizer.ggml.model", {"gpt2", "gemma4"});
  const bool byte_level = keys.find("tokenizer.ggml.model") == "gpt2";
  Json tokenizer{{"model", {{"type", "BPE"}}}};
  if (byte_level) {
    (void)keys.at("tokenizer.ggml.pre");
    keys.expect("tokenizer.ggml.pre", {"llada-moe", "bailingmoe", "bailingmoe2"});
    tokenizer["pre_tokenizer"] = byte_level_pieces();
  } else {
    add_characters(keys, tokenizer);
  }
  add_tokens(keys, byte_level, tokenizer);
  tokenizer["model"]["merges"] = merges_of(keys);
  add_surroundings(keys, !byte_level, tokenizer);
  return tokenizer;
}

Json gguf_tokenizer_config(const GgufKeys& keys) {
  Json config = Json::object();
  if (keys.find("tokenizer.ggml.model").is_null()) return config;
  for (const auto& [theirs, ours] : kSpecial)
    if (const std::string token = token_of(keys, theirs); !token.empty()) config[ours] = token;
  const std::string key = "tokenizer.chat_template";
  const Json& usual = keys.find(key);
  if (usual.is_null()) return config;
  if (!usual.is_string()) keys.refuse(key, "a text");
  const Json& tools = keys.find(key + ".tool_use");
  if (!tools.is_string()) {
    config["chat_template"] = usual;
  } else {
    config["chat_template"] = {{{"name", "default"}, {"template", usual}},
                               {{"name", "tool_use"}, {"template", tools}}};
  }
  return config;
}

}  // namespace tessera::load

#include "tokenizer/folder.h"

#include <cmath>
#include <map>
#include <utility>

#include "base/config_reader.h"
#include "base/fail.h"
#include "base/is_there.h"
#include "base/member.h"
#include "tokenizer/formats.h"

namespace tessera::tokenizer {
namespace {

using base::Json;

constexpr int32_t kMostIds = 1 << 24;

Json read_if(const std::string& path) {
  return base::is_there(path) ? base::read_json(path) : Json::object();
}

std::string text_of(const Json& token) {
  if (token.is_object()) return text_of(base::member(token, "content"));
  return token.is_string() ? token.get<std::string>() : "";
}

// Adds tokens that configuration files declare by role.
void add_roles(TokenizerParts& parts, const Json& config) {
  for (const char* role : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                           "cls_token", "mask_token"}) {
    if (!config.is_object() || !config.contains(role)) continue;
    const std::string text = text_of(config[role]);
    if (const auto id = parts.model->id_of(text); id && !text.empty()) parts.added.add({text, *id});
  }
}

void add_listed(TokenizerParts& parts, const Json& json, const Json& config,
                const std::string& folder) {
  read_added_tokens(json, folder + "/tokenizer.json", parts);
  const std::string from = folder + "/tokenizer_config.json";
  if (!config.contains("added_tokens_decoder")) return;
  require(config["added_tokens_decoder"].is_object(), ErrorCode::model,
          "{}: 'added_tokens_decoder' is no object", from);
  std::map<int32_t, const Json*> tokens;  // by number, because ids follow from the order
  for (const auto& [key, token] : config["added_tokens_decoder"].items()) {
    const bool digits =
        !key.empty() && key.size() <= 8 && key.find_first_not_of("0123456789") == std::string::npos;
    require(digits && std::stoi(key) <= kMostIds, ErrorCode::model,
            "{}: an added token of id {}; expected a number", from,
            base::ConfigReader::shown(Json(key)));
    tokens.emplace(std::stoi(key), &token);
  }
  for (const auto& [id, entry] : tokens) {
    AddedToken token = added_token_of(*entry, id, from);
    if (!entry->contains("normalized")) token.normalized = !token.special;
    add_declared(std::move(token), parts, false);
  }
}

void set_padding(TokenizerParts& parts, const Json& json, const Json& config, const Json& map) {
  auto find = [&](const std::string& text) -> std::optional<int32_t> {
    if (text.empty()) return std::nullopt;
    if (const AddedToken* token = parts.added.find(text)) return token->id;
    return parts.model->id_of(text);
  };
  for (const Json* from : {&config, &map})
    if (!parts.padding && from->is_object() && from->contains("pad_token"))
      parts.padding = find(text_of((*from)["pad_token"]));
  if (!parts.padding && json.contains("padding") && json["padding"].is_object())
    parts.padding = find(text_of(json["padding"].value("pad_token", Json(""))));
  for (const char* usual : {"<pad>", "[PAD]"})
    if (!parts.padding) parts.padding = find(usual);
  if (config.contains("model_max_length") && config["model_max_length"].is_number()) {
    const double longest = config["model_max_length"].get<double>();
    if (longest >= 1 && longest < 1e8) parts.longest = static_cast<int64_t>(longest);
  }
}

bool is_t5(const Json& config) {
  const std::string name = string_in(config, "tokenizer_class", "tokenizer_config.json", "");
  return name.starts_with("T5Tokenizer") || name.starts_with("MT5Tokenizer");
}

// T5 has a hundred tokens after those of the file, the last first.
void add_extra_ids(TokenizerParts& parts) {
  for (int32_t number = parts.extra_ids - 1; number >= 0; --number) {
    const std::string text = fmt::format("<extra_id_{}>", number);
    parts.added.add({text, *vocabulary_id(parts, text)});
  }
}

}  // namespace

std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& folder) {
  auto path = [&](const char* file) { return folder + "/" + file; };
  auto there = [&](const char* file) { return base::is_there(path(file)); };
  const Json config = read_if(path("tokenizer_config.json"));
  const Json map = read_if(path("special_tokens_map.json"));
  Json json = Json::object();
  TokenizerParts parts;
  bool sentencepiece = false;
  if (there("tokenizer.json")) {
    json = base::read_json(path("tokenizer.json"));
    parts = is_t5(config) ? parts_of_t5_json(json, path("tokenizer.json"))
                          : parts_of_json(json, path("tokenizer.json"));
  } else if (there("spiece.model")) {
    parts = parts_of_spiece(path("spiece.model"), sentencepiece);
  } else if (there("vocab.json") && there("merges.txt")) {
    parts = parts_of_clip(path("vocab.json"), path("merges.txt"));
  } else if (there("vocab.txt")) {
    parts = parts_of_bert(path("vocab.txt"), config, path("tokenizer_config.json"));
  } else {
    fail(ErrorCode::model,
         "{}: no tokenizer; expected tokenizer.json, spiece.model, vocab.json with merges.txt, or "
         "vocab.txt",
         folder);
  }
  if (!sentencepiece && there("spiece.model") && !there("tokenizer.json"))
    parts.extra_ids = static_cast<int32_t>(base::ConfigReader(config, path("tokenizer_config.json"))
                                               .integer("extra_ids", 100, 0, 10000));
  add_listed(parts, json, config, folder);
  if (!sentencepiece) {
    add_roles(parts, config);
    add_roles(parts, map);
    add_extra_ids(parts);
  }
  set_padding(parts, json, config, map);
  return std::make_shared<Tokenizer>(std::move(parts), folder);
}

}  // namespace tessera::tokenizer

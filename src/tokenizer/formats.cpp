#include "tokenizer/formats.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/config_reader.h"
#include "base/fail.h"
#include "base/input_file.h"
#include "base/member.h"
#include "base/printable.h"
#include "base/stop.h"
#include "tokenizer/bpe.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/spiece.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unigram.h"
#include "tokenizer/wordpiece.h"

namespace tessera::tokenizer {
namespace {

using base::Json;
using base::member;

constexpr int64_t kMostIds = 1 << 24;

Vocabulary vocabulary_of(const Json& json, const std::string& where) {
  require(json.is_object() && !json.empty(), ErrorCode::model,
          "{}: the vocabulary is {}; expected an object of tokens", where,
          base::ConfigReader::shown(json));
  Vocabulary vocabulary;
  for (const auto& [text, id] : json.items()) {
    base::check_stop();
    require(id.is_number_integer() && id >= 0 && id < kMostIds, ErrorCode::model,
            "{}: token {} has id {}; expected a whole number from 0", where, base::printable(text),
            base::ConfigReader::shown(id));
    vocabulary.emplace(text, id.get<int32_t>());
  }
  return vocabulary;
}

std::vector<std::string> lines_of(const std::string& path) {
  const std::string text = repaired(base::read_file(path, base::kLargestText));
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    base::check_stop();
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    if (!lines.back().empty() && lines.back().back() == '\r') lines.back().pop_back();
    at = end + 1;
  }
  return lines;
}

std::pair<std::string, std::string> merge_of(const Json& json, const std::string& where) {
  if (json.is_array() && json.size() == 2 && json[0].is_string() && json[1].is_string())
    return {json[0].get<std::string>(), json[1].get<std::string>()};
  const std::string line = json.is_string() ? json.get<std::string>() : "";
  const size_t space = line.find(' ');
  require(space != std::string::npos && space > 0 && line.find(' ', space + 1) == std::string::npos,
          ErrorCode::model, "{}: a merge is {}; expected two tokens", where,
          base::ConfigReader::shown(json));
  return {line.substr(0, space), line.substr(space + 1)};
}

std::shared_ptr<const Model> bpe_of(const Json& json, const std::string& where) {
  BpeTables tables;
  tables.vocabulary = vocabulary_of(member(json, "vocab"), where);
  for (const Json& merge : member(json, "merges")) {
    base::check_stop();
    tables.merges.push_back(merge_of(merge, where));
  }
  tables.word_end = string_in(json, "end_of_word_suffix", where, "");
  tables.unknown = string_in(json, "unk_token", where, "");
  tables.fuse_unknown = flag_in(json, "fuse_unk", where, false);
  tables.byte_fallback = flag_in(json, "byte_fallback", where, false);
  tables.whole_first = flag_in(json, "ignore_merges", where, false);
  const std::string prefix = string_in(json, "continuing_subword_prefix", where, "");
  require(prefix.empty(), ErrorCode::model, "{}: a BPE with a prefix is not known", where);
  return std::make_shared<Bpe>(std::move(tables), where);
}

std::shared_ptr<const Model> unigram_of(const Json& json, const std::string& where) {
  UnigramPieces pieces;
  for (const Json& piece : member(json, "vocab")) {
    base::check_stop();
    const bool fits = piece.is_array() && piece.size() == 2 && piece[0].is_string() &&
                      piece[1].is_number() && std::isfinite(piece[1].get<double>());
    require(fits, ErrorCode::model, "{}: a piece is {}; expected text and score", where,
            base::ConfigReader::shown(piece));
    pieces.pieces.emplace_back(piece[0].get<std::string>(), piece[1].get<double>());
  }
  pieces.unknown =
      static_cast<int32_t>(base::ConfigReader(json, where).integer("unk_id", -1, 0, kMostIds));
  pieces.byte_fallback = flag_in(json, "byte_fallback", where, false);
  return std::make_shared<Unigram>(std::move(pieces), where);
}

std::shared_ptr<const Model> model_of(const Json& json, const std::string& where) {
  require(json.is_object(), ErrorCode::model, "{}: no 'model'", where);
  const std::string type = string_in(json, "type", where, json.contains("merges") ? "BPE" : "");
  if (type == "BPE") return bpe_of(json, where);
  if (type == "Unigram") return unigram_of(json, where);
  require(type == "WordPiece", ErrorCode::model, "{}: the model {} is not known", where,
          base::printable(type));
  return std::make_shared<WordPiece>(
      WordPieceTables{vocabulary_of(member(json, "vocab"), where),
                      string_in(json, "unk_token", where, "[UNK]"),
                      string_in(json, "continuing_subword_prefix", where, "##"),
                      base::ConfigReader(json, where).size("max_input_chars_per_word", 100)},
      where);
}

// Parses [text, id] of BertProcessing and RobertaProcessing.
int32_t pair_id(const Json& json, const char* key, const std::string& where) {
  const Json pair = json.value(key, Json());
  const bool fits = pair.is_array() && pair.size() == 2 && pair[1].is_number_integer() &&
                    pair[1] >= 0 && pair[1] < kMostIds;
  require(fits, ErrorCode::model, "{}: '{}' is {}; expected a token and its id", where, key,
          base::ConfigReader::shown(pair));
  return pair[1].get<int32_t>();
}

void read_template(const Json& json, const std::string& where, TokenizerParts& parts) {
  bool behind = false;
  for (const Json& item : member(json, "single")) {
    base::check_stop();
    require(item.is_object(), ErrorCode::model, "{}: a template of {}", where,
            base::ConfigReader::shown(item));
    if (item.contains("Sequence")) {
      behind = true;
      continue;
    }
    const std::string token = string_in(member(item, "SpecialToken"), "id", where);
    for (const Json& id : member(member(member(json, "special_tokens"), token.c_str()), "ids")) {
      require(id.is_number_integer() && id >= 0 && id < kMostIds, ErrorCode::model,
              "{}: the special token {} has id {}", where, base::printable(token),
              base::ConfigReader::shown(id));
      (behind ? parts.after : parts.before).push_back(id.get<int32_t>());
    }
  }
}

void read_post_processor(const Json& json, const std::string& where, TokenizerParts& parts) {
  if (json.is_null()) return;
  const std::string type = string_in(json, "type", where);
  if (type == "Sequence") {
    for (const Json& step : member(json, "processors")) read_post_processor(step, where, parts);
  } else if (type == "TemplateProcessing") {
    read_template(json, where, parts);
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    parts.before.push_back(pair_id(json, "cls", where));
    parts.after.push_back(pair_id(json, "sep", where));
  } else {
    require(type == "ByteLevel", ErrorCode::model, "{}: the post-processor {} is not known", where,
            base::printable(type));
  }
}

int32_t special(const Model& model, const char* token, const std::string& where) {
  const auto id = model.id_of(token);
  require(id.has_value(), ErrorCode::model, "{}: the token {} is missing", where, token);
  return *id;
}

// Pre-tokenizer of the tokenizers library for T5.
Json t5_words() {
  return {{"type", "Sequence"},
          {"pretokenizers", {{{"type", "WhitespaceSplit"}}, {{"type", "Metaspace"}}}}};
}

// The character map among the steps of a normalizer; null: none.
Json charsmap_in(const Json& normalizer) {
  if (member(normalizer, "type") == "Precompiled") return normalizer;
  for (const Json& step : member(normalizer, "normalizers"))
    if (Json charsmap = charsmap_in(step); !charsmap.is_null()) return charsmap;
  return Json();
}

// Normalises a whole text like the SentencePiece library.
std::string sentencepiece_normal(const SpieceModel& m, const Charsmap& map, std::string_view text) {
  std::string result;
  const std::string space = m.escape_whitespaces ? "\xe2\x96\x81" : " ";
  bool blank = m.remove_extra_whitespaces, started = false;
  for (size_t at = 0; at < text.size();) {
    base::check_stop();
    const auto match = map.longest(text.substr(at));
    const size_t length = match ? match->length : length_of(text[at]);
    std::string_view part = match ? match->text : text.substr(at, length);
    at += length;
    if (!started && m.remove_extra_whitespaces && part == " ") continue;
    if (!started && m.add_dummy_prefix && !m.treat_whitespace_as_suffix) result += space;
    started = true;
    while (blank && !part.empty() && part[0] == ' ') part.remove_prefix(1);
    for (char c : part) c == ' ' ? result += space : result += c;
    check_length(result.size());
    if (!part.empty()) blank = part.back() == ' ';
    blank &= m.remove_extra_whitespaces;
  }
  while (m.remove_extra_whitespaces && result.size() >= space.size() &&
         result.compare(result.size() - space.size(), space.size(), space) == 0)
    result.resize(result.size() - space.size());
  if (started && m.add_dummy_prefix && m.treat_whitespace_as_suffix) result += space;
  return result;
}

}  // namespace

AddedToken added_token_of(const Json& json, int32_t id, const std::string& where) {
  require(id >= 0, ErrorCode::model, "{}: an added token without id", where);
  return {string_in(json, "content", where),          id,
          flag_in(json, "lstrip", where, false),      flag_in(json, "rstrip", where, false),
          flag_in(json, "single_word", where, false), flag_in(json, "normalized", where, false),
          flag_in(json, "special", where, false)};
}

void read_added_tokens(const Json& json, const std::string& where, TokenizerParts& parts) {
  const Json& list = member(json, "added_tokens");
  require(list.is_array() || !json.contains("added_tokens"), ErrorCode::model,
          "{}: 'added_tokens' is no list", where);
  for (const Json& token : list) {
    base::check_stop();
    const auto id =
        static_cast<int32_t>(base::ConfigReader(token, where).integer("id", -1, 0, kMostIds));
    add_declared(added_token_of(token, id, where), parts, true);
  }
}

std::optional<int32_t> vocabulary_id(const TokenizerParts& parts, const std::string& text) {
  if (const auto id = parts.model->id_of(text)) return id;
  int32_t number = -1;
  const std::string_view before = "<extra_id_";
  if (!text.starts_with(before) || !text.ends_with('>')) return std::nullopt;
  const char *at = text.data() + before.size(), *end = text.data() + text.size() - 1;
  const bool plain = std::from_chars(at, end, number).ptr == end && (*at != '0' || end == at + 1);
  if (!plain || number < 0 || number >= parts.extra_ids) return std::nullopt;
  return static_cast<int32_t>(parts.model->size()) + parts.extra_ids - 1 - number;
}

void add_declared(AddedToken token, TokenizerParts& parts, bool keeps_gaps) {
  const auto size = static_cast<int32_t>(parts.model->size());
  const bool id_in_use = parts.added.has_id(token.id) || !parts.model->text_of(token.id).empty();
  if (const auto id = vocabulary_id(parts, token.text))
    token.id = *id;
  else if (id_in_use || (token.id >= size && !keeps_gaps))
    token.id = std::max(size + parts.extra_ids, parts.added.last_id() + 1);
  parts.added.add(std::move(token));
}

TokenizerParts parts_of_json(const Json& json, const std::string& where) {
  require(json.is_object(), ErrorCode::model, "{}: expected an object", where);
  TokenizerParts parts;
  parts.normalizer = parse_normalizer(member(json, "normalizer"), where);
  parts.pre_tokenizer = parse_pre_tokenizer(member(json, "pre_tokenizer"), where);
  parts.model = model_of(member(json, "model"), where);
  read_post_processor(member(json, "post_processor"), where, parts);
  return parts;
}

TokenizerParts parts_of_t5_json(Json json, const std::string& where) {
  require(json.is_object(), ErrorCode::model, "{}: expected an object", where);
  json["normalizer"] = charsmap_in(member(json, "normalizer"));
  json["pre_tokenizer"] = t5_words();
  return parts_of_json(json, where);
}

TokenizerParts parts_of_spiece(const std::string& path, bool& sentencepiece) {
  SpieceModel spiece = parse_spiece(base::read_file(path, base::kLargestText), path);
  require(spiece.model_type == 1, ErrorCode::model,
          "{}: a SentencePiece model of type {}; only unigram (1) is known", path,
          spiece.model_type);
  using Type = SpieceModel::Type;
  sentencepiece = spiece.byte_fallback;
  UnigramPieces pieces;
  pieces.unknown = -1;
  pieces.byte_fallback = pieces.single_precision = sentencepiece;
  for (const SpieceModel::Piece& piece : spiece.pieces) {
    if (piece.type == Type::unknown) pieces.unknown = static_cast<int32_t>(pieces.pieces.size());
    pieces.pieces.emplace_back(piece.text, double{piece.score});
    pieces.hidden.push_back(piece.type != Type::normal && piece.type != Type::user_defined);
    pieces.user_defined.push_back(sentencepiece && piece.type == Type::user_defined);
  }
  spiece.pieces.clear();
  TokenizerParts parts;
  parts.model = std::make_shared<Unigram>(std::move(pieces), path);
  parts.after = {special(*parts.model, "</s>", path)};
  const auto map = std::make_shared<Charsmap>(spiece.charsmap, path);
  if (sentencepiece) {
    parts.normalizer = [=](const std::string& text, TextAllowance&) {
      return sentencepiece_normal(spiece, *map, text);
    };
    parts.pre_tokenizer = parse_pre_tokenizer(Json(), path);
    return parts;
  }
  parts.normalizer = [=](const std::string& text, TextAllowance&) { return map->apply(text); };
  parts.pre_tokenizer = parse_pre_tokenizer(t5_words(), path);
  return parts;
}

TokenizerParts parts_of_clip(const std::string& vocabulary, const std::string& merges) {
  BpeTables tables;
  tables.vocabulary = vocabulary_of(base::read_json(vocabulary), vocabulary);
  const std::vector<std::string> lines = lines_of(merges);
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool header = i == 0 && lines[i].compare(0, 8, "#version") == 0;
    if (!header && !lines[i].empty()) tables.merges.push_back(merge_of(lines[i], merges));
  }
  tables.word_end = "</w>";
  tables.unknown = "<|endoftext|>";
  TokenizerParts parts;
  parts.model = std::make_shared<Bpe>(std::move(tables), merges);
  parts.before = {special(*parts.model, "<|startoftext|>", vocabulary)};
  parts.after = {special(*parts.model, "<|endoftext|>", vocabulary)};
  const Json space = {{"type", "Replace"}, {"pattern", {{"Regex", "\\s+"}}}, {"content", " "}};
  parts.normalizer = parse_normalizer(
      {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, space, {{"type", "Lowercase"}}}}},
      vocabulary);
  const char* const words =
      "<\\|startoftext\\|>|<\\|endoftext\\|>|'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|"
      "[^\\s\\p{L}\\p{N}]+";
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", words}}},
                      {"behavior", "Removed"},
                      {"invert", true}};
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  parts.pre_tokenizer = parse_pre_tokenizer(
      {{"type", "Sequence"}, {"pretokenizers", Json::array({split, bytes})}}, vocabulary);
  return parts;
}

TokenizerParts parts_of_bert(const std::string& path, const Json& config,
                             const std::string& config_path) {
  WordPieceTables tables;
  const std::vector<std::string> lines = lines_of(path);
  require(lines.size() <= size_t{kMostIds}, ErrorCode::model, "{}: {} lines", path, lines.size());
  for (size_t i = 0; i < lines.size(); ++i) tables.vocabulary[lines[i]] = static_cast<int32_t>(i);
  TokenizerParts parts;
  parts.model = std::make_shared<WordPiece>(std::move(tables), path);
  parts.before = {special(*parts.model, "[CLS]", path)};
  parts.after = {special(*parts.model, "[SEP]", path)};
  const bool lower = flag_in(config, "do_lower_case", config_path, true);
  parts.normalizer = parse_normalizer(
      {{"type", "BertNormalizer"},
       {"handle_chinese_chars", flag_in(config, "tokenize_chinese_chars", config_path, true)},
       {"lowercase", lower},
       {"strip_accents", flag_in(config, "strip_accents", config_path, lower)}},
      path);
  parts.pre_tokenizer = parse_pre_tokenizer({{"type", "BertPreTokenizer"}}, path);
  return parts;
}

}  // namespace tessera::tokenizer

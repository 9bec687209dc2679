#include "tokenizer/byte_level_bpe.h"

#include <unicode/utf8.h>

#include "base/fail.h"
#include "base/member.h"
#include "base/printable.h"
#include "base/stop.h"
#include "tokenizer/bpe.h"
#include "tokenizer/formats.h"

namespace tessera::tokenizer {
namespace {

using base::Json;

// A token as the file spells it, one character a byte -> its bytes; what is spelled otherwise
// stands for itself.
std::string bytes_of_spelling(const std::string& spelled) {
  static const std::unordered_map<std::string, char> kBytes = [] {
    std::unordered_map<std::string, char> bytes;
    for (int b = 0; b < 256; ++b) {
      const char byte = static_cast<char>(b);
      bytes.emplace(bytes_as_characters({&byte, 1}), byte);
    }
    return bytes;
  }();
  std::string bytes;
  int32_t at = 0;
  const auto length = static_cast<int32_t>(spelled.size());
  while (at < length) {
    const auto begin = static_cast<size_t>(at);
    U8_FWD_1(spelled.data(), at, length);
    const auto byte = kBytes.find(spelled.substr(begin, static_cast<size_t>(at) - begin));
    if (byte == kBytes.end()) return spelled;
    bytes.push_back(byte->second);
  }
  return bytes;
}

bool has_byte_level(const Json& pre_tokenizer) {
  if (base::member(pre_tokenizer, "type") == "ByteLevel") return true;
  for (const Json& step : base::member(pre_tokenizer, "pretokenizers"))
    if (has_byte_level(step)) return true;
  return false;
}

// What encodes; the tokens around a text are the chat template's business.
TokenizerParts parts_of(const Json& json, const std::string& where) {
  require(json.is_object() && has_byte_level(base::member(json, "pre_tokenizer")), ErrorCode::model,
          "{}: no pre-tokenizer ByteLevel; expected a byte-level tokenizer.json", where);
  TokenizerParts parts = parts_of_json(json, where);
  read_added_tokens(json, where, parts);
  parts.before.clear();
  parts.after.clear();
  return parts;
}

}  // namespace

ByteLevelBpe::ByteLevelBpe(const Json& json, const std::string& where)
    : ByteLevelBpe(json, parts_of(json, where), where) {}

ByteLevelBpe::ByteLevelBpe(const Json& json, TokenizerParts parts, const std::string& where)
    : tokenizer_(std::move(parts), where) {
  for (const auto& [spelled, id] : json.at("model").at("vocab").items()) {
    base::check_stop();
    tokens_[id.get<int32_t>()].bytes = bytes_of_spelling(spelled);
  }
  for (const AddedToken& token : tokenizer_.added())
    tokens_[token.id] = {token.text, token.special};
}

std::vector<int32_t> ByteLevelBpe::encode(std::string_view text) const {
  require(text.size() < size_t{1} << 30, ErrorCode::usage,
          "the text has {} bytes; expected less than 1 GB", text.size());
  require(whole_characters(text) == text.size(), ErrorCode::usage,
          "the text is not UTF-8 behind byte {}", whole_characters(text));
  return tokenizer_.encode(text);
}

std::string ByteLevelBpe::bytes_of(int32_t id, bool skip_special) const {
  const auto found = tokens_.find(id);
  if (found == tokens_.end() || (skip_special && found->second.special)) return "";
  return found->second.bytes;
}

int32_t ByteLevelBpe::id_of(const std::string& token) const {
  return tokenizer_.id_of(token).value_or(-1);
}

size_t whole_characters(std::string_view text) {
  int32_t at = 0;
  const auto length = static_cast<int32_t>(text.size());
  while (at < length) {
    const int32_t begin = at;
    UChar32 c = 0;
    U8_NEXT(text.data(), at, length, c);
    if (c < 0) return static_cast<size_t>(begin);
  }
  return text.size();
}

std::string readable(std::string_view bytes, bool ended) {
  std::string out;
  append_readable(bytes, ended, out);
  return out;
}

size_t append_readable(std::string_view bytes, bool ended, std::string& out) {
  int32_t at = 0;
  const auto length = static_cast<int32_t>(bytes.size());
  while (at < length) {
    const int32_t begin = at;
    UChar32 c = 0;
    U8_NEXT(bytes.data(), at, length, c);
    if (c >= 0) {
      out.append(bytes.substr(static_cast<size_t>(begin), static_cast<size_t>(at - begin)));
    } else if (!ended && at == length &&
               length - begin < 1 + U8_COUNT_TRAIL_BYTES(uint8_t(bytes[size_t(begin)]))) {
      return static_cast<size_t>(begin);  // the rest of the character may still come
    } else {
      out += "\xef\xbf\xbd";
    }
  }
  return bytes.size();
}

}  // namespace tessera::tokenizer

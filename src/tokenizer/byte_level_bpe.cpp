#include "tokenizer/byte_level_bpe.h"

#include <unicode/utf8.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/fail.h"
#include "base/member.h"
#include "base/printable.h"
#include "base/stop.h"
#include "tokenizer/bpe.h"
#include "tokenizer/formats.h"

namespace tessera::tokenizer {
namespace {

using base::Json;

// Converts a token from byte-level spelling, a character for each byte, to bytes; other spellings
// are returned unchanged.
std::string bytes_of_spelling(const std::string& token) {
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
  const auto length = static_cast<int32_t>(token.size());
  while (at < length) {
    const auto begin = static_cast<size_t>(at);
    U8_FWD_1(token.data(), at, length);
    const auto byte = kBytes.find(token.substr(begin, static_cast<size_t>(at) - begin));
    if (byte == kBytes.end()) return token;
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

// Special tokens that stay in an answer: Gemma 4 marks tool calls, their strings, and thoughts with
// them, and parsers of an answer and chat templates look for these.
bool is_mark(const std::string& token) {
  constexpr std::string_view kMarks[] = {"<|tool_call>", "<tool_call|>", "<|\"|>", "<|channel>",
                                         "<channel|>"};
  return std::ranges::find(kMarks, token) != std::end(kMarks);
}

// True if tokens are spelled in characters, with U+2581 for a space and "<0xNN>" for single bytes
// (Gemma).
bool has_byte_fallback(const Json& json) {
  const Json& model = base::member(json, "model");
  const Json& decoder = base::member(json, "decoder");
  const Json space{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}};
  return model.is_object() && base::member(model, "byte_fallback") == true &&
         decoder == Json{{"type", "Sequence"},
                         {"decoders", {space, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}};
}

// Bytes of a token in a byte-fallback vocabulary.
std::string bytes_of_fallback(const std::string& token) {
  if (token.size() == 6 && token.starts_with("<0x") && token.back() == '>') {
    char* end = nullptr;
    const auto byte = std::strtol(token.substr(3, 2).c_str(), &end, 16);
    if (*end == '\0') return {static_cast<char>(byte)};
  }
  constexpr std::string_view kSpace = "\u2581";
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const bool space = std::string_view(token).substr(at).starts_with(kSpace);
    bytes += space ? ' ' : token[at];
    at += space ? kSpace.size() : 1;
  }
  return bytes;
}

TokenizerParts parts_of(const Json& json, const std::string& where) {
  require(json.is_object() &&
              (has_byte_level(base::member(json, "pre_tokenizer")) || has_byte_fallback(json)),
          ErrorCode::model,
          "{}: no pre-tokenizer ByteLevel and no decoder ByteFallback; expected a tokenizer.json "
          "that has tokens for all bytes",
          where);
  TokenizerParts parts = parts_of_json(json, where);
  read_added_tokens(json, where, parts);
  return parts;
}

}  // namespace

ByteLevelBpe::ByteLevelBpe(const Json& json, const std::string& where)
    : ByteLevelBpe(json, parts_of(json, where), where) {}

// A chat template writes the surrounding tokens itself; encode_alone() adds them.
ByteLevelBpe::ByteLevelBpe(const Json& json, TokenizerParts parts, const std::string& where)
    : before_(std::exchange(parts.before, {})),
      after_(std::exchange(parts.after, {})),
      tokenizer_(std::move(parts), where) {
  const bool fallback = has_byte_fallback(json);
  for (const auto& [token, id] : json.at("model").at("vocab").items()) {
    base::check_stop();
    tokens_[id.get<int32_t>()].bytes =
        fallback ? bytes_of_fallback(token) : bytes_of_spelling(token);
  }
  for (const AddedToken& token : tokenizer_.added())
    tokens_[token.id] = {token.text, token.special && !is_mark(token.text)};
}

std::vector<int32_t> ByteLevelBpe::encode(std::string_view text) const {
  require(text.size() < size_t{1} << 30, ErrorCode::usage,
          "the text has {} bytes; expected less than 1 GB", text.size());
  require(whole_characters(text) == text.size(), ErrorCode::usage,
          "the text is not UTF-8 behind byte {}", whole_characters(text));
  return tokenizer_.encode(text);
}

std::vector<int32_t> ByteLevelBpe::encode_alone(std::string_view text) const {
  std::vector<int32_t> ids = before_;
  const std::vector<int32_t> inside = encode(text);
  ids.insert(ids.end(), inside.begin(), inside.end());
  ids.insert(ids.end(), after_.begin(), after_.end());
  return ids;
}

std::string ByteLevelBpe::bytes_of(int32_t id, bool skip_special) const {
  const auto it = tokens_.find(id);
  if (it == tokens_.end() || (skip_special && it->second.special)) return "";
  return it->second.bytes;
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

std::string readable(std::string_view bytes, bool at_end) {
  std::string out;
  append_readable(bytes, at_end, out);
  return out;
}

size_t append_readable(std::string_view bytes, bool at_end, std::string& out) {
  int32_t at = 0;
  const auto length = static_cast<int32_t>(bytes.size());
  while (at < length) {
    const int32_t begin = at;
    UChar32 c = 0;
    U8_NEXT(bytes.data(), at, length, c);
    if (c >= 0) {
      out.append(bytes.substr(static_cast<size_t>(begin), static_cast<size_t>(at - begin)));
    } else if (!at_end && at == length &&
               length - begin < 1 + U8_COUNT_TRAIL_BYTES(uint8_t(bytes[size_t(begin)]))) {
      return static_cast<size_t>(begin);  // the rest of the character may follow
    } else {
      out += "\xef\xbf\xbd";
    }
  }
  return bytes.size();
}

}  // namespace tessera::tokenizer

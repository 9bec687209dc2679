#include "tokenizer/charsmap.h"

#include <algorithm>

#include "base/fail.h"
#include "base/stop.h"
#include "tokenizer/unicode.h"

namespace tessera::tokenizer {
namespace {

uint32_t word_at(std::string_view bytes, size_t at) {
  uint32_t word = 0;
  for (size_t i = 0; i < 4; ++i)
    word |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return word;
}

// Fields of a Darts-clone unit.
bool has_leaf(uint32_t unit) { return unit >> 8 & 1; }
uint32_t value_of(uint32_t unit) { return unit & 0x7fffffffu; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000ffu; }
uint32_t offset_of(uint32_t unit) { return unit >> 10 << ((unit & 0x200u) >> 6); }

constexpr size_t kGraphemeBytes = 6;  // longer graphemes are mapped by code point
constexpr size_t kLongestKey = 128;   // limit, because a damaged trie may have cycles

}  // namespace

Charsmap::Charsmap(std::string_view blob, const std::string& where) : where_(where) {
  if (blob.empty()) return;
  const size_t size = blob.size() < 4 ? 0 : word_at(blob, 0);
  require(
      blob.size() > 4 && size >= 4 && size % 4 == 0 && size <= blob.size() - 4, ErrorCode::model,
      "{}: the character map of {} bytes says that its trie has {}; expected whole words within it",
      where, blob.size(), size);
  units_.resize(size / 4);
  for (size_t i = 0; i < units_.size(); ++i) units_[i] = word_at(blob, 4 + 4 * i);
  texts_ = blob.substr(4 + size);
  require(repaired(texts_) == texts_, ErrorCode::model,
          "{}: the character map holds text that is no UTF-8", where);
}

std::string_view Charsmap::replacement(uint32_t offset) const {
  require(offset < texts_.size(), ErrorCode::model,
          "{}: the character map points at byte {} of {}; the file is damaged", where_, offset,
          texts_.size());
  const std::string_view rest = std::string_view(texts_).substr(offset);
  require((static_cast<unsigned char>(rest[0]) & 0xc0u) != 0x80u, ErrorCode::model,
          "{}: the character map points into the middle of a character at {}; the file is damaged",
          where_, offset);
  return rest.substr(0, rest.find('\0'));
}

std::optional<Charsmap::Match> Charsmap::find(std::string_view text, bool first) const {
  if (units_.empty()) return std::nullopt;
  size_t length = 0;
  uint32_t offset = 0;
  size_t node = offset_of(units_[0]);
  for (size_t i = 0; i < std::min(text.size(), kLongestKey); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    node ^= c;
    if (c == 0 || node >= units_.size() || label_of(units_[node]) != c) break;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    require(node < units_.size(), ErrorCode::model,
            "{}: the character map leads to word {} of {}; the file is damaged", where_, node,
            units_.size());
    length = i + 1;
    offset = value_of(units_[node]);
    if (first) break;
  }
  if (length == 0) return std::nullopt;
  return Match{length, replacement(offset)};
}

std::optional<Charsmap::Match> Charsmap::longest(std::string_view text) const {
  return find(text, false);
}
std::optional<Charsmap::Match> Charsmap::shortest(std::string_view text) const {
  return find(text, true);
}

std::string Charsmap::apply(std::string_view text) const {
  if (empty()) return std::string(text);
  std::string result;
  result.reserve(text.size());
  for (std::string_view grapheme : graphemes(text)) {
    base::check_stop();
    if (grapheme.size() < kGraphemeBytes)
      if (const auto whole = shortest(grapheme)) {
        result += whole->text;
        check_length(result.size());
        continue;
      }
    for (size_t at = 0; at < grapheme.size();) {
      const std::string_view character = grapheme.substr(at, length_of(grapheme[at]));
      const auto match = shortest(character);
      result += match ? match->text : character;
      check_length(result.size());
      at += character.size();
    }
  }
  return result;
}

}  // namespace tessera::tokenizer

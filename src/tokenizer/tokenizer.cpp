#include "tokenizer/tokenizer.h"

#include <algorithm>

#include "base/fail.h"
#include "base/stop.h"
#include "tokenizer/unicode.h"

namespace tessera::tokenizer {
namespace {

char32_t before(std::string_view text, size_t at) {
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0u) == 0x80u);
  return next_code_point(text, at);
}

bool word_beside(std::string_view text, size_t begin, size_t end) {
  return (begin > 0 && is_word(before(text, begin))) ||
         (end < text.size() && is_word(next_code_point(text, end)));
}

}  // namespace

Tokenizer::Tokenizer(TokenizerParts parts, const std::string& where)
    : parts_(std::move(parts)), where_(where) {
  PrefixTable::Texts raw, normalized;
  size_t bytes = 0;
  for (const AddedToken& token : parts_.added) bytes += token.text.size();
  TextAllowance allowance(bytes);
  for (size_t i = 0; i < parts_.added.size(); ++i) {
    const AddedToken& token = parts_.added[i];
    const auto at = static_cast<int32_t>(i);
    if (token.normalized)
      normalized.emplace_back(parts_.normalizer(token.text, allowance), at);
    else
      raw.emplace_back(token.text, at);
  }
  raw_ = PrefixTable(std::move(raw), where);
  normalized_ = PrefixTable(std::move(normalized), where);
}

// Calls between(text) for the text between added tokens.
template <class F>
void Tokenizer::around(std::string_view text, const PrefixTable& tokens, F&& visit_text,
                       std::vector<int32_t>& ids) const {
  size_t end_of_last = 0;
  const std::vector<PrefixTable::Place> places =
      tokens.empty() ? std::vector<PrefixTable::Place>() : tokens.places(text);
  for (size_t at = 0; at < places.size();) {
    base::check_stop();
    const auto [bytes, index] = tokens.longest(places[at]);
    if (bytes == 0) {
      ++at;
      continue;
    }
    const AddedToken& token = parts_.added[static_cast<size_t>(index)];
    size_t begin = at, end = at + bytes;
    at = end;
    if (token.single_word && word_beside(text, begin, end)) continue;
    while (token.left_strip && begin > end_of_last && is_space(before(text, begin))) {
      do --begin;
      while ((static_cast<unsigned char>(text[begin]) & 0xc0u) == 0x80u);
    }
    for (size_t next = end; token.right_strip && end < text.size(); end = next)
      if (!is_space(next_code_point(text, next))) break;
    if (begin > end_of_last) visit_text(text.substr(end_of_last, begin - end_of_last));
    ids.push_back(token.id);
    end_of_last = at = end;
  }
  if (end_of_last < text.size()) visit_text(text.substr(end_of_last));
}

std::vector<int32_t> Tokenizer::body(std::string_view text) const {
  const std::string valid = repaired(text);
  std::vector<int32_t> ids;
  TextAllowance allowance(valid.size());
  auto model = [&](std::string_view part) {
    std::vector<std::string> pieces;
    parts_.pre_tokenizer(part, pieces, allowance);
    for (const std::string& piece : pieces) {
      base::check_stop();
      if (!piece.empty()) parts_.model->encode(piece, ids);
    }
  };
  around(
      valid, raw_,
      [&](std::string_view part) {
        around(parts_.normalizer(std::string(part), allowance), normalized_, model, ids);
      },
      ids);
  return ids;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids = body(text);
  ids.insert(ids.begin(), parts_.before.begin(), parts_.before.end());
  ids.insert(ids.end(), parts_.after.begin(), parts_.after.end());
  return ids;
}

Encoded Tokenizer::encode_padded(std::string_view text, int64_t length) const {
  const auto special = static_cast<int64_t>(parts_.before.size() + parts_.after.size());
  require(length >= special && length <= (int64_t{1} << 24), ErrorCode::usage,
          "{} tokens of text; expected at least the {} special ones", length, special);
  std::vector<int32_t> ids = body(text);
  const auto all = static_cast<int64_t>(ids.size()), count = std::min(all, length - special);
  ids.resize(static_cast<size_t>(count));
  ids.insert(ids.begin(), parts_.before.begin(), parts_.before.end());
  ids.insert(ids.end(), parts_.after.begin(), parts_.after.end());
  Encoded encoded{std::move(ids), {}, all - count};
  encoded.mask.assign(encoded.ids.size(), 1);
  encoded.mask.resize(static_cast<size_t>(length), 0);
  if (encoded.ids.size() == static_cast<size_t>(length)) return encoded;
  require(parts_.padding.has_value(), ErrorCode::model,
          "{}: no pad_token; {} tokens cannot be made {}", where_, encoded.ids.size(), length);
  encoded.ids.resize(static_cast<size_t>(length), *parts_.padding);
  return encoded;
}

std::optional<int32_t> Tokenizer::id_of(std::string_view token) const {
  if (const AddedToken* entry = parts_.added.find(token)) return entry->id;
  return parts_.model->id_of(token);
}

std::string Tokenizer::text_of(int32_t id) const {
  if (const AddedToken* token = parts_.added.of(id)) return token->text;
  return parts_.model->text_of(id);
}

int64_t Tokenizer::vocabulary() const {
  int64_t size = parts_.model->size();
  for (const AddedToken& token : parts_.added) size = std::max<int64_t>(size, token.id + 1);
  return size;
}

}  // namespace tessera::tokenizer

#include "tokenizer/wordpiece.h"

#include "base/fail.h"
#include "base/printable.h"
#include "base/stop.h"
#include "tokenizer/unicode.h"

namespace tessera::tokenizer {

WordPiece::WordPiece(WordPieceTables tables, const std::string& where)
    : tables_(std::move(tables)) {
  for (const auto& [text, id] : tables_.vocabulary) size_ = std::max<int64_t>(size_, id + 1);
  by_id_ = TokensById(tables_.vocabulary);
  const auto unknown = id_of(tables_.unknown);
  require(unknown.has_value(), ErrorCode::model,
          "{}: the unknown token {} is not in the vocabulary", where,
          base::printable(tables_.unknown));
  unknown_ = *unknown;
  PrefixTable::Texts first, later;
  for (const auto& [text, id] : tables_.vocabulary) {
    base::check_stop();
    first.emplace_back(text, id);
    if (text.starts_with(tables_.continuation))
      later.emplace_back(text.substr(tables_.continuation.size()), id);
  }
  first_ = PrefixTable(std::move(first), where);
  later_ = PrefixTable(std::move(later), where);
}

std::optional<int32_t> WordPiece::id_of(std::string_view token) const {
  const auto it = tables_.vocabulary.find(token);
  if (it == tables_.vocabulary.end()) return std::nullopt;
  return it->second;
}

void WordPiece::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  int64_t characters = 0;
  for (size_t at = 0; at < piece.size(); at += length_of(piece[at])) ++characters;
  if (characters > tables_.longest_word) {
    ids.push_back(unknown_);
    return;
  }
  const size_t before = ids.size();
  const auto first = first_.places(piece), later = later_.places(piece);
  size_t at = 0;
  while (at < piece.size()) {
    base::check_stop();
    const auto [bytes, id] = at == 0 ? first_.longest(first[0]) : later_.longest(later[at]);
    if (bytes == 0) break;
    ids.push_back(id);
    at += bytes;
  }
  if (at == piece.size()) return;  // otherwise the whole word is unknown
  ids.resize(before);
  ids.push_back(unknown_);
}

}  // namespace tessera::tokenizer

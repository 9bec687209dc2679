#include "tokenizer/wordpiece.h"

#include <algorithm>

#include "base/fail.h"
#include "base/printable.h"
#include "tokenizer/unicode.h"

namespace tessera::tokenizer {

WordPiece::WordPiece(WordPieceTables tables, const std::string& where)
    : tables_(std::move(tables)) {
  for (const auto& [text, id] : tables_.vocabulary) size_ = std::max<int64_t>(size_, id + 1);
  const auto unknown = id_of(tables_.unknown);
  require(unknown.has_value(), ErrorCode::model,
          "{}: the unknown token {} is not in the vocabulary", where,
          base::printable(tables_.unknown));
  unknown_ = *unknown;
}

std::optional<int32_t> WordPiece::id_of(std::string_view token) const {
  const auto found = tables_.vocabulary.find(std::string(token));
  if (found == tables_.vocabulary.end()) return std::nullopt;
  return found->second;
}

void WordPiece::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  std::vector<size_t> ends;  // of characters
  for (size_t at = 0; at < piece.size();) ends.push_back(at += length_of(piece[at]));
  const size_t first = ids.size();
  auto give_up = [&] {
    ids.resize(first);
    ids.push_back(unknown_);
  };
  if (ends.size() > static_cast<size_t>(tables_.longest_word)) return give_up();
  for (size_t begin = 0, c = 0; begin < piece.size();) {
    std::optional<int32_t> id;
    size_t end = ends.size();
    for (; end > c && !id; --end) {
      const std::string part(piece.substr(begin, ends[end - 1] - begin));
      id = id_of(begin == 0 ? part : tables_.continuation + part);
    }
    if (!id) return give_up();
    ids.push_back(*id);
    c = end + 1;
    begin = ends[end];
  }
}

}  // namespace tessera::tokenizer

#include "tokenizer/unigram.h"

#include <algorithm>
#include <limits>

#include "base/fail.h"
#include "base/printable.h"
#include "base/stop.h"
#include "tokenizer/unicode.h"

namespace tessera::tokenizer {
namespace {

constexpr double kUnknownPenalty = 10;  // SentencePiece's value
constexpr size_t kLongestPiece = 160;   // bytes; as many pieces may begin at a position

}  // namespace

struct Unigram::Node {
  double score = 0;
  size_t from = std::string_view::npos;
  int32_t id = 0;
};

Unigram::Unigram(UnigramPieces pieces, const std::string& where) : pieces_(std::move(pieces)) {
  const auto& list = pieces_.pieces;
  const auto count = static_cast<int32_t>(list.size());
  require(pieces_.unknown >= 0 && pieces_.unknown < count, ErrorCode::model,
          "{}: the unknown token is {} of {}; expected one of them", where, pieces_.unknown, count);
  pieces_.hidden.resize(list.size());
  pieces_.user_defined.resize(list.size());
  PrefixTable::Texts visible;
  double least = std::numeric_limits<double>::infinity();
  largest_score_ = -least;
  for (int32_t i = 0; i < count; ++i) {
    base::check_stop();
    all_.push_back(i);
    const double score = list[size_t(i)].second;
    if (pieces_.hidden[size_t(i)] || list[size_t(i)].first.empty()) continue;
    require(list[size_t(i)].first.size() <= kLongestPiece, ErrorCode::model,
            "{}: the piece {} has {} bytes; expected at most {}", where,
            base::printable(list[size_t(i)].first), list[size_t(i)].first.size(), kLongestPiece);
    visible.emplace_back(list[size_t(i)].first, i);
    if (pieces_.user_defined[size_t(i)]) continue;
    least = std::min(least, score);
    largest_score_ = std::max(largest_score_, score);
  }
  require(largest_score_ >= least, ErrorCode::model, "{}: no piece that text could become", where);
  unknown_score_ = least - kUnknownPenalty;
  auto before = [&](int32_t a, int32_t b) {
    base::check_stop();
    return list[size_t(a)].first < list[size_t(b)].first;
  };
  std::sort(all_.begin(), all_.end(), before);
  visible_ = PrefixTable(std::move(visible), where);
  if (!pieces_.byte_fallback) return;
  for (int b = 0; b < 256; ++b) {
    const auto id = id_of(fmt::format("<0x{:02X}>", b));
    require(id.has_value(), ErrorCode::model, "{}: falls back to bytes, but lacks <0x{:02X}>",
            where, b);
    bytes_[size_t(b)] = *id;
  }
}

std::optional<int32_t> Unigram::id_of(std::string_view token) const {
  const auto& list = pieces_.pieces;
  const auto it = std::lower_bound(
      all_.begin(), all_.end(), token,
      [&](int32_t id, std::string_view text) { return list[size_t(id)].first < text; });
  if (it == all_.end() || list[size_t(*it)].first != token) return std::nullopt;
  return *it;
}

std::string Unigram::text_of(int32_t id) const {
  return id < 0 || id >= size() ? "" : pieces_.pieces[static_cast<size_t>(id)].first;
}

// Relaxes all pieces that start at a position.
void Unigram::relax(std::string_view text, size_t at, PrefixTable::Place place,
                    std::vector<Node>& nodes) const {
  const auto& list = pieces_.pieces;
  const size_t length = length_of(text[at]);
  const double here = nodes[at].score;
  auto offer = [&](size_t to, double score, int32_t id) {
    double sum = here + score;
    if (pieces_.single_precision) sum = static_cast<double>(static_cast<float>(sum));
    if (nodes[to].from == std::string_view::npos || sum > nodes[to].score)
      nodes[to] = {sum, at, id};
  };
  bool single = false;
  visible_.each(place, [&](size_t bytes, int32_t piece) {
    const auto id = size_t(piece);
    offer(at + bytes,
          pieces_.user_defined[id] ? double(bytes) * largest_score_ - 0.1 : list[id].second, piece);
    single |= bytes == length;
  });
  if (!single) offer(at + length, unknown_score_, pieces_.unknown);
}

void Unigram::encode(std::string_view text, std::vector<int32_t>& ids) const {
  std::vector<Node> nodes(text.size() + 1);
  const std::vector<PrefixTable::Place> places = visible_.places(text);
  for (size_t at = 0; at < text.size(); at += length_of(text[at])) {
    base::check_stop();
    relax(text, at, places[at], nodes);
  }
  const size_t first = ids.size();
  for (size_t end = text.size(); end > 0; end = nodes[end].from) {
    const Node& node = nodes[end];
    if (node.id == pieces_.unknown && pieces_.byte_fallback) {
      for (size_t b = end; b > node.from; --b)
        ids.push_back(bytes_[static_cast<unsigned char>(text[b - 1])]);
      continue;
    }
    const bool again = node.id == pieces_.unknown && ids.size() > first && ids.back() == node.id;
    if (!again) ids.push_back(node.id);
  }
  std::reverse(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end());
}

}  // namespace tessera::tokenizer

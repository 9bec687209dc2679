#include "tokenizer/prefix_table.h"

#include <algorithm>

#include "base/fail.h"
#include "base/printable.h"
#include "base/stop.h"

namespace tessera::tokenizer {
namespace {

constexpr size_t kLongestToken = 512;           // limits the cost of a character of text
constexpr size_t kMostNodes = size_t{1} << 24;  // published vocabularies have up to 2 million

// End of the sorted texts from `from` on with the same byte at `depth`.
size_t end_of(const PrefixTable::Texts& texts, size_t from, size_t to, size_t depth) {
  const auto same = [&, byte = texts[from].first[depth]](const auto& entry) {
    return entry.first[depth] == byte;
  };
  if (same(texts[to - 1])) return to;
  size_t reach = 1;  // small groups lie near `from`
  while (from + reach < to && same(texts[from + reach])) reach *= 2;
  const auto begin = texts.begin();
  return static_cast<size_t>(
      std::partition_point(begin + static_cast<ptrdiff_t>(from),
                           begin + static_cast<ptrdiff_t>(std::min(from + reach, to)), same) -
      begin);
}

}  // namespace

PrefixTable::PrefixTable(Texts texts, const std::string& where) {
  std::erase_if(texts, [](const auto& entry) { return entry.first.empty(); });
  for (auto& [text, value] : texts) {
    base::check_stop();
    require(text.size() <= kLongestToken, ErrorCode::model,
            "{}: the token {} has {} bytes; expected at most {}", where, base::printable(text),
            text.size(), kLongestToken);
    std::reverse(text.begin(), text.end());
  }
  if (texts.empty()) return;
  std::stable_sort(texts.begin(), texts.end(), [](const auto& a, const auto& b) {
    base::check_stop();
    return a.first < b.first;
  });
  texts.erase(std::unique(texts.begin(), texts.end(),
                          [](const auto& a, const auto& b) { return a.first == b.first; }),
              texts.end());
  grow(texts, where);
}

// Builds nodes level by level, each with the range of texts that share the prefix.
void PrefixTable::grow(const Texts& texts, const std::string& where) {
  struct Range {
    Place node;
    size_t from, to;
  };
  std::vector<Range> level = {{0, 0, texts.size()}};
  longest_.clear();
  const auto add = [&](unsigned char byte, Place link, size_t depth) {
    require(byte_.size() < kMostNodes, ErrorCode::model,
            "{}: the tokens have more than {} different beginnings; expected a vocabulary", where,
            kMostNodes);
    byte_.push_back(byte);
    link_.push_back(link);
    longest_.push_back(link == kNone ? kNone : longest_[static_cast<size_t>(link)]);
    bytes_.push_back(static_cast<uint16_t>(depth));
    value_.push_back(0);
  };
  add(0, kNone, 0);
  for (size_t depth = 0; !level.empty(); ++depth) {
    std::vector<Range> below;
    for (Range range : level) {
      base::check_stop();
      begins_.push_back(static_cast<Place>(byte_.size()));
      while (range.from < range.to) {
        const auto byte = static_cast<unsigned char>(texts[range.from].first[depth]);
        const size_t to = end_of(texts, range.from, range.to, depth);
        const auto node = static_cast<Place>(byte_.size());
        add(byte, depth == 0 ? 0 : next(link_[static_cast<size_t>(range.node)], byte), depth + 1);
        if (depth == 0) first_[byte] = node;
        if (texts[range.from].first.size() == depth + 1) {  // the shortest comes first
          longest_.back() = node;
          value_.back() = texts[range.from++].second;
        }
        below.push_back({node, range.from, to});
        range.from = to;
      }
    }
    level = std::move(below);
  }
  begins_.push_back(static_cast<Place>(byte_.size()));
}

// 0: none. Links lead to earlier levels, whose children are complete.
PrefixTable::Place PrefixTable::child(Place of, unsigned char byte) const {
  if (of == 0) return first_[byte];
  const auto begin = byte_.begin() + begins_[static_cast<size_t>(of)];
  const auto end = byte_.begin() + begins_[static_cast<size_t>(of) + 1];
  const auto it = std::lower_bound(begin, end, byte);
  return it == end || *it != byte ? 0 : static_cast<Place>(it - byte_.begin());
}

PrefixTable::Place PrefixTable::next(Place from, unsigned char byte) const {
  for (;; from = link_[static_cast<size_t>(from)]) {
    const Place to = child(from, byte);
    if (to != 0 || from == 0) return to;
  }
}

std::vector<PrefixTable::Place> PrefixTable::places(std::string_view text) const {
  std::vector<Place> places(text.size());
  if (empty()) return places;
  Place now = 0;
  for (size_t at = text.size(); at > 0; --at) {
    base::check_stop();
    places[at - 1] = now = next(now, static_cast<unsigned char>(text[at - 1]));
  }
  return places;
}

}  // namespace tessera::tokenizer

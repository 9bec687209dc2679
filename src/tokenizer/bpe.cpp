#include "tokenizer/bpe.h"

#include <algorithm>
#include <array>
#include <queue>
#include <unordered_map>
#include <utility>

#include "base/fail.h"
#include "base/printable.h"
#include "base/stop.h"
#include "tokenizer/unicode.h"

namespace tessera::tokenizer {
namespace {

uint64_t key_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

std::array<std::string, 256> byte_characters() {
  std::array<std::string, 256> texts;
  char32_t next = 256;  // nonprinting bytes follow Latin-1
  for (char32_t b = 0; b < 256; ++b) {
    const bool prints = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    append(texts[b], prints ? b : next++);
  }
  return texts;
}

// Pairs waiting to be merged, by rank of their merge, then by position. A merge mostly creates
// pairs from left to right, so each rank has a sorted queue, and a heap for the rest.
class WaitingPairs {
 public:
  void add(int32_t rank, int32_t place) {
    auto [it, is_new] = of_rank_.try_emplace(rank);
    if (is_new) ranks_.push(rank);
    Places& places = it->second;
    if (places.in_order.empty() || places.in_order.back() < place)
      places.in_order.push_back(place);
    else
      places.rest.push(place);
  }
  bool empty() const { return ranks_.empty(); }
  /// Removes the next pair and returns rank and position.
  std::pair<int32_t, int32_t> take() {
    const int32_t rank = ranks_.top();
    const auto it = of_rank_.find(rank);
    Places& places = it->second;
    const bool more = places.next < places.in_order.size();
    const bool first =
        places.rest.empty() || (more && places.in_order[places.next] < places.rest.top());
    const int32_t place = first ? places.in_order[places.next++] : places.rest.top();
    if (!first) places.rest.pop();
    if (places.next == places.in_order.size() && places.rest.empty()) {
      of_rank_.erase(it);
      ranks_.pop();
    }
    return {rank, place};
  }

 private:
  template <class T>
  using Heap = std::priority_queue<T, std::vector<T>, std::greater<>>;
  struct Places {
    std::vector<int32_t> in_order;
    size_t next = 0;  // index into in_order
    Heap<int32_t> rest;
  };
  std::unordered_map<int32_t, Places> of_rank_;
  Heap<int32_t> ranks_;
};

}  // namespace

std::string bytes_as_characters(std::string_view piece) {
  static const std::array<std::string, 256> kTexts = byte_characters();
  std::string result;
  for (char c : piece) result += kTexts[static_cast<unsigned char>(c)];
  return result;
}

Bpe::Bpe(BpeTables tables, const std::string& where) : tables_(std::move(tables)), where_(where) {
  require(!tables_.vocabulary.empty(), ErrorCode::model, "{}: the vocabulary is empty", where);
  for (const auto& [text, id] : tables_.vocabulary) size_ = std::max<int64_t>(size_, id + 1);
  auto id = [&](const std::string& text) {
    const auto token = id_of(text);
    require(token.has_value(), ErrorCode::model,
            "{}: the token {} of a merge is not in the vocabulary", where, base::printable(text));
    return *token;
  };
  int32_t rank = 0;
  merges_.reserve(tables_.merges.size());
  for (const auto& [left, right] : tables_.merges) {
    base::check_stop();
    merges_.try_emplace(key_of(id(left), id(right)), Merge{rank++, id(left + right)});
  }
  by_id_ = TokensById(tables_.vocabulary);
  if (!tables_.unknown.empty()) unknown_ = id(tables_.unknown);
  tables_.merges.clear();
}

std::optional<int32_t> Bpe::id_of(std::string_view token) const {
  const auto it = tables_.vocabulary.find(token);
  if (it == tables_.vocabulary.end()) return std::nullopt;
  return it->second;
}

TokensById::TokensById(const Vocabulary& vocabulary) {
  tokens_.reserve(vocabulary.size());
  for (const auto& [text, id] : vocabulary) tokens_.emplace_back(id, &text);
  std::ranges::sort(tokens_, {}, [](const auto& token) {
    return std::pair(token.first, std::string_view(*token.second));
  });
}

std::string TokensById::of(int32_t id) const {
  const auto it =
      std::ranges::lower_bound(tokens_, id, {}, [](const auto& token) { return token.first; });
  return it == tokens_.end() || it->first != id ? "" : *it->second;
}

const Bpe::Merge* Bpe::merge_of(int32_t left, int32_t right) const {
  const auto it = merges_.find(key_of(left, right));
  return it == merges_.end() ? nullptr : &it->second;
}

std::vector<int32_t> Bpe::characters(std::string_view piece) const {
  std::vector<int32_t> ids;
  bool after_unknown = false;
  for (size_t at = 0; at < piece.size();) {
    base::check_stop();
    std::string character(piece.substr(at, length_of(piece[at])));
    at += character.size();
    if (at >= piece.size()) character += tables_.word_end;
    if (const auto id = id_of(character)) {
      ids.push_back(*id);
      after_unknown = false;
      continue;
    }
    std::vector<int32_t> bytes;
    for (char c : character)
      if (const auto id = id_of(fmt::format("<0x{:02X}>", static_cast<unsigned char>(c))))
        bytes.push_back(*id);
    if (tables_.byte_fallback && bytes.size() == character.size()) {
      ids.insert(ids.end(), bytes.begin(), bytes.end());
      after_unknown = false;
      continue;
    }
    require(unknown_.has_value(), ErrorCode::usage, "{}: the vocabulary has no token for {}",
            where_, base::printable(character));
    if (!(after_unknown && tables_.fuse_unknown)) {
      ids.push_back(*unknown_);
      after_unknown = true;
    }
  }
  return ids;
}

void Bpe::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  if (tables_.whole_first)
    if (const auto whole = id_of(piece)) {
      ids.push_back(*whole);
      return;
    }
  std::vector<int32_t> tokens = characters(piece);
  const auto count = static_cast<int32_t>(tokens.size());
  std::vector<int32_t> before(tokens.size()), after(tokens.size());
  WaitingPairs waiting;
  auto offer = [&](int32_t at) {
    if (at < 0 || after[size_t(at)] >= count) return;
    if (const Merge* m = merge_of(tokens[size_t(at)], tokens[size_t(after[size_t(at)])]))
      waiting.add(m->rank, at);
  };
  for (int32_t i = 0; i < count; ++i) before[size_t(i)] = i - 1, after[size_t(i)] = i + 1;
  for (int32_t i = 0; i < count; ++i) offer(i);
  while (!waiting.empty()) {
    base::check_stop();
    const auto [rank, at] = waiting.take();
    const int32_t right = after[size_t(at)];
    if (tokens[size_t(at)] < 0 || right >= count) continue;
    const Merge* now = merge_of(tokens[size_t(at)], tokens[size_t(right)]);
    if (!now || now->rank != rank) continue;  // another merge used a part of the pair
    tokens[size_t(at)] = now->id;
    tokens[size_t(right)] = -1;
    const int32_t next = after[size_t(right)];
    after[size_t(at)] = next;
    if (next < count) before[size_t(next)] = at;
    offer(before[size_t(at)]);
    offer(at);
  }
  for (int32_t token : tokens)
    if (token >= 0) ids.push_back(token);
}

}  // namespace tessera::tokenizer

#pragma once

#include "fused/dispatcher.h"
#include "fused/queue.h"

namespace tessera::fused {

/// News from words written by other ranks.
struct Arrival {
  enum class Kind : uint8_t { nothing, counts, rows, results, refused } kind = Kind::nothing;
  int peer = 0;
  Task tile{};       ///< rows and results
  int64_t word = 0;  ///< the word's offset in the own buffer, for missing arrivals
};

/// The word of an arrival in reports of missing ones.
inline const char* word_of(Arrival::Kind kind) {
  switch (kind) {
    case Arrival::Kind::counts: return "counts";
    case Arrival::Kind::rows: return "rows";
    case Arrival::Kind::results: return "results";
    case Arrival::Kind::refused:
    case Arrival::Kind::nothing: break;
  }
  return "own tasks";
}

/// Waits for the words of one epoch after the other. Only words of the current epoch count: a peer
/// may be one epoch behind or ahead, with separate words for counts.
class Subscriber {
 public:
  Subscriber() = default;
  /// `experts`: of this rank; `buffer`: the own symmetric buffer.
  Subscriber(const Layout& layout, int experts, const std::byte* buffer, Carver& memory)
      : layout_(layout),
        experts_(experts),
        buffer_(buffer),
        awaited_(memory.take<Task>(int64_t{2} * layout.ranks * layout.most)),
        next_(memory.take<int32_t>(int64_t{2} * layout.ranks * layout.run_tiles())),
        known_(memory.take<int32_t>(int64_t{2} * layout.ranks)),
        left_(memory.take<int32_t>(int64_t{2} * layout.ranks)),
        heard_(memory.take<int32_t>(layout.ranks)),
        rows_(memory.take<int64_t>(int64_t{layout.ranks} * layout.experts)) {}

  TESSERA_ANYWHERE void begin(uint64_t epoch) {
    epoch_ = epoch;
    for (int i = 0; i < 2 * layout_.ranks; ++i) {
      for (int t = 0; t < known_[i]; ++t) awaited_[i * layout_.most + t] = {};
      for (int t = 0; t < layout_.run_tiles(); ++t) next_[i * layout_.run_tiles() + t] = t;
      known_[i] = left_[i] = 0;
    }
    for (int p = 0; p < layout_.ranks; ++p) heard_[p] = 0;
  }
  /// Tiles to expect from a peer: known by the counts, so flags are read only when
  /// possible.
  TESSERA_ANYWHERE int expect(Round round, int peer, const int64_t* counts) {
    const int list = peer * 2 + static_cast<int>(round);
    for (int e = 0; e < layout_.experts; ++e) {
      const int64_t first = layout_.first_row(counts, e) / layout_.tiles.tile;
      for (int64_t i = 0; i < layout_.tiles.count(counts[e]); ++i, ++left_[list]) {
        awaited_[list * layout_.most + first + i] = {
            round == Round::dispatch ? TaskKind::up : TaskKind::collect, peer, e,
            static_cast<int32_t>(i), static_cast<int32_t>(layout_.tiles.rows_of(i, counts[e]))};
        known_[list] = static_cast<int32_t>(first + i + 1);
      }
    }
    return left_[list];
  }

  /// Each item is a word to look for; found items are not found again.
  TESSERA_ANYWHERE int items() const { return layout_.ranks * (1 + 2 * layout_.run_tiles()); }
  template <class Words>
  TESSERA_ANYWHERE Arrival look(int item, Words& words) {
    if (item < layout_.ranks) return look_for_counts(item, words);
    const int list = (item - layout_.ranks) / layout_.run_tiles();
    const int place = (item - layout_.ranks) % layout_.run_tiles();
    const Arrival arrival = awaited(list, place);
    if (arrival.kind == Arrival::Kind::nothing) return arrival;
    int32_t& number = next_[list * layout_.run_tiles() + place];
    if (words.load(word(arrival.word)) != tile_word(layout_, epoch_, number)) return {};
    number += layout_.run_tiles();
    --left_[list];
    return arrival;
  }
  /// Looks at all items; calls arrived(Arrival) for present ones.
  template <class Words, class Arrived>
  TESSERA_ANYWHERE void look_everywhere(Words& words, const Arrived& arrived) {
    for (int p = 0; p < layout_.ranks; ++p) {
      const Arrival arrival = look(p, words);
      if (arrival.kind != Arrival::Kind::nothing) arrived(arrival);
    }
    for (int list = 0; list < 2 * layout_.ranks; ++list)
      for (int t = 0; left_[list] > 0 && t < known_[list] && t < layout_.run_tiles(); ++t) {
        const Arrival arrival = look(layout_.ranks + list * layout_.run_tiles() + t, words);
        if (arrival.kind != Arrival::Kind::nothing) arrived(arrival);
      }
  }

  /// The first awaited and missing arrival.
  TESSERA_ANYWHERE Arrival missing(int me) const {
    for (int p = 0; p < layout_.ranks; ++p)
      if (p != me && !heard_[p])
        return {Arrival::Kind::counts, p, {}, layout_.count_offset(epoch_, p, 0)};
    for (int list = 0; list < 2 * layout_.ranks; ++list)
      for (int t = 0; left_[list] > 0 && t < layout_.run_tiles(); ++t) {
        const Arrival arrival = awaited(list, t);
        if (arrival.kind != Arrival::Kind::nothing) return arrival;
      }
    return {};
  }
  /// Rows of a peer for each own expert, after its announcement.
  TESSERA_ANYWHERE const int64_t* rows(int peer) const { return rows_ + peer * layout_.experts; }

 private:
  // The next tile at a place of a run, if any.
  TESSERA_ANYWHERE Arrival awaited(int list, int place) const {
    const int32_t number = next_[list * layout_.run_tiles() + place];
    if (number >= known_[list]) return {};
    const Task& tile = awaited_[list * layout_.most + number];
    if (tile.rows == 0) return {};
    const auto round = static_cast<Round>(list % 2);
    return {round == Round::dispatch ? Arrival::Kind::rows : Arrival::Kind::results, list / 2, tile,
            layout_.flag_offset(list / 2, round, place)};
  }
  TESSERA_ANYWHERE const uint64_t* word(int64_t offset) const {
    return reinterpret_cast<const uint64_t*>(buffer_ + offset);
  }
  // A peer's count is a size here, so it is checked before use.
  TESSERA_ANYWHERE bool may_be(const int64_t* counts) const {
    for (int e = experts_; e < layout_.experts; ++e)
      if (counts[e] != 0) return false;
    return layout_.fits(counts);
  }
  template <class Words>
  TESSERA_ANYWHERE Arrival look_for_counts(int peer, Words& words) {
    if (heard_[peer]) return {};
    int64_t* const rows = rows_ + peer * layout_.experts;
    for (int e = 0; e < layout_.experts; ++e) {
      const uint64_t value = words.load(word(layout_.count_offset(epoch_, peer, e)));
      if (value >> 32 != (epoch_ & 0xffffffff)) return {};
      rows[e] = static_cast<int64_t>(value & 0xffffffff);
    }
    heard_[peer] = 1;
    return {may_be(rows) ? Arrival::Kind::counts : Arrival::Kind::refused,
            peer,
            {},
            layout_.count_offset(epoch_, peer, 0)};
  }

  Layout layout_{};
  int experts_ = 0;
  const std::byte* buffer_ = nullptr;
  uint64_t epoch_ = 0;
  Task* awaited_ = nullptr;   // [ranks][rounds][most tiles], by number
  int32_t* next_ = nullptr;   // [ranks][rounds][tiles of a run]: numbers of the next tiles
  int32_t* known_ = nullptr;  // [ranks][rounds]: the expected numbers end here
  int32_t* left_ = nullptr;   // missing tiles
  int32_t* heard_ = nullptr;  // [ranks]
  int64_t* rows_ = nullptr;   // [ranks][experts]
};

}  // namespace tessera::fused

#pragma once

#include "fused/dispatcher.h"
#include "fused/queue.h"

namespace tessera::fused {

/// What a rank learns from the words that others write into its buffer.
struct Arrival {
  enum class Kind : uint8_t { nothing, counts, rows, results } kind = Kind::nothing;
  int peer = 0;
  Task tile{};       ///< of rows and results
  int64_t word = 0;  ///< where it says so, in my buffer; of what is missing
};

/// Waits for the words of one epoch after the other. A word counts if it is of this very epoch: a
/// peer may be one epoch behind, or one before me, whose counts have words of their own.
class Subscriber {
 public:
  Subscriber() = default;
  /// `buffer`: mine of the symmetric ones.
  TESSERA_ANYWHERE Subscriber(const Layout& layout, const std::byte* buffer, Carver& memory)
      : layout_(layout),
        buffer_(buffer),
        awaited_(memory.take<Awaited>(int64_t{2} * layout.ranks * layout.run_tiles())),
        known_(memory.take<int32_t>(int64_t{2} * layout.ranks)),
        left_(memory.take<int32_t>(int64_t{2} * layout.ranks)),
        heard_(memory.take<int32_t>(layout.ranks)),
        rows_(memory.take<int64_t>(int64_t{layout.ranks} * layout.experts)) {}

  TESSERA_ANYWHERE void begin(uint64_t epoch) {
    epoch_ = epoch;
    for (int i = 0; i < 2 * layout_.ranks; ++i) {
      for (int t = 0; t < known_[i]; ++t) awaited_[i * layout_.run_tiles() + t] = {};
      known_[i] = left_[i] = 0;
    }
    for (int p = 0; p < layout_.ranks; ++p) heard_[p] = 0;
  }
  /// Tiles that a peer gives back, or sends: known by the counts, so that a flag is looked at only
  /// when it can come.
  TESSERA_ANYWHERE int expect(Round round, int peer, const int64_t* counts) {
    const int list = peer * 2 + static_cast<int>(round);
    for (int e = 0; e < layout_.experts; ++e) {
      const int64_t first = layout_.first_row(counts, e);
      for (int64_t i = 0; i < layout_.tiles.count(counts[e]); ++i) {
        const int64_t row = i * layout_.tiles.tile;
        Awaited& one = awaited_[list * layout_.run_tiles() + known_[list]++];
        one.tile = {round == Round::dispatch ? TaskKind::up : TaskKind::combine, peer, e,
                    static_cast<int32_t>(i),
                    static_cast<int32_t>(layout_.tiles.rows_of(i, counts[e]))};
        one.flag = layout_.flag_offset({peer, round, Side::incoming, e, row}, first);
      }
    }
    left_[list] = known_[list];
    return known_[list];
  }

  /// Each item is one thing to look for; what was found once is not found again.
  TESSERA_ANYWHERE int items() const { return layout_.ranks * (1 + 2 * layout_.run_tiles()); }
  template <class Words>
  TESSERA_ANYWHERE Arrival look(int item, Words& words) {
    if (item < layout_.ranks) return look_for_counts(item, words);
    const int list = (item - layout_.ranks) / layout_.run_tiles();
    const int tile = (item - layout_.ranks) % layout_.run_tiles();
    if (tile >= known_[list]) return {};
    Awaited& one = awaited_[list * layout_.run_tiles() + tile];
    if (one.here || words.load(word(one.flag)) != epoch_) return {};
    one.here = 1;
    --left_[list];
    return {kind_of(list), list / 2, one.tile};
  }
  /// All items that may have come; calls arrived(Arrival) for those that have.
  template <class Words, class Arrived>
  TESSERA_ANYWHERE void look_everywhere(Words& words, const Arrived& arrived) {
    for (int p = 0; p < layout_.ranks; ++p) {
      const Arrival one = look(p, words);
      if (one.kind != Arrival::Kind::nothing) arrived(one);
    }
    for (int list = 0; list < 2 * layout_.ranks; ++list)
      for (int t = 0; left_[list] > 0 && t < known_[list]; ++t) {
        const Arrival one = look(layout_.ranks + list * layout_.run_tiles() + t, words);
        if (one.kind != Arrival::Kind::nothing) arrived(one);
      }
  }

  /// The first thing that is awaited and has not come.
  TESSERA_ANYWHERE Arrival missing(int me) const {
    for (int p = 0; p < layout_.ranks; ++p)
      if (p != me && !heard_[p])
        return {Arrival::Kind::counts, p, {}, layout_.count_offset(epoch_, p, 0)};
    for (int list = 0; list < 2 * layout_.ranks; ++list)
      for (int t = 0; left_[list] > 0 && t < known_[list]; ++t) {
        const Awaited& one = awaited_[list * layout_.run_tiles() + t];
        if (!one.here) return {kind_of(list), list / 2, one.tile, one.flag};
      }
    return {};
  }
  /// Rows that a peer sends to each of my experts, once it was heard.
  TESSERA_ANYWHERE const int64_t* rows(int peer) const { return rows_ + peer * layout_.experts; }

 private:
  struct Awaited {
    Task tile{};
    int32_t here = 0;
    int64_t flag = 0;
  };

  TESSERA_ANYWHERE static constexpr Arrival::Kind kind_of(int list) {
    return list % 2 == 0 ? Arrival::Kind::rows : Arrival::Kind::results;
  }
  TESSERA_ANYWHERE const uint64_t* word(int64_t offset) const {
    return reinterpret_cast<const uint64_t*>(buffer_ + offset);
  }
  template <class Words>
  TESSERA_ANYWHERE Arrival look_for_counts(int peer, Words& words) {
    if (heard_[peer]) return {};
    for (int e = 0; e < layout_.experts; ++e) {
      const uint64_t value = words.load(word(layout_.count_offset(epoch_, peer, e)));
      if (value >> 32 != (epoch_ & 0xffffffff)) return {};
      rows_[peer * layout_.experts + e] = static_cast<int64_t>(value & 0xffffffff);
    }
    heard_[peer] = 1;
    return {Arrival::Kind::counts, peer, {}};
  }

  Layout layout_{};
  const std::byte* buffer_ = nullptr;
  uint64_t epoch_ = 0;
  Awaited* awaited_ = nullptr;  // [ranks][rounds][tiles of a run]
  int32_t* known_ = nullptr;    // [ranks][rounds]: how many of them are expected
  int32_t* left_ = nullptr;     // and have not come
  int32_t* heard_ = nullptr;    // [ranks]
  int64_t* rows_ = nullptr;     // [ranks][experts]
};

}  // namespace tessera::fused

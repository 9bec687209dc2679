#pragma once

#include "fused/task.h"

namespace tessera::fused {

/// A write into another rank's buffer: rows, if any, and a word behind them as signal.
struct Transfer {
  int32_t to = 0;
  int64_t bytes = 0;
  int64_t from = 0, at = 0;  ///< offsets, in the sender's buffer and in the receiver's
  int64_t word = 0;          ///< offset of the word in the receiver's buffer
  uint64_t value = 0;
};

/// The number of rows to come, and the epoch.
constexpr uint64_t count_word(uint64_t epoch, int64_t rows) {
  return epoch << 32 | static_cast<uint64_t>(rows);
}

/// The present tile among tiles in a place of a run, and the epoch.
constexpr uint64_t tile_word(const Layout& layout, uint64_t epoch, int64_t number) {
  return epoch << 32 | static_cast<uint64_t>(number / layout.run_tiles() + 1);
}

/// Sources and targets of transfers. Counts are those of the tokens' rank and the experts' rank, by
/// expert: for dispatch those of own tokens, for give_back those of the peer's.
class Dispatcher {
 public:
  TESSERA_ANYWHERE Dispatcher(const Layout& layout, int rank) : layout_(layout), rank_(rank) {}

  /// Tells a peer the number of own rows for an expert there.
  TESSERA_ANYWHERE Transfer count(int peer, int expert, int64_t rows, uint64_t epoch) const {
    return {peer, 0, 0, 0, layout_.count_offset(epoch, rank_, expert), count_word(epoch, rows)};
  }
  /// A tile of dispatch or give_back, without its padding.
  TESSERA_ANYWHERE Transfer tile(const Task& task, const int64_t* counts, uint64_t epoch) const {
    const int64_t first = layout_.first_row(counts, task.expert);
    const Place arrives = place(task, Side::incoming, rank_);
    return {task.peer,
            task.rows * layout_.row_bytes,
            layout_.offset(place(task, Side::outgoing, task.peer), first),
            layout_.offset(arrives, first),
            layout_.flag_offset(arrives, first),
            tile_word(layout_, epoch, layout_.number(arrives, first))};
  }
  /// The place of a tile's departure or arrival.
  TESSERA_ANYWHERE Place place(const Task& task, Side side, int peer) const {
    return {peer, round_of(task.kind), side, task.expert, task.index * layout_.tiles.tile};
  }
  TESSERA_ANYWHERE int64_t offset(const Task& task, Side side, const int64_t* counts) const {
    return layout_.offset(place(task, side, task.peer), layout_.first_row(counts, task.expert));
  }

 private:
  static constexpr Round round_of(TaskKind kind) {
    return kind == TaskKind::dispatch || kind == TaskKind::up ? Round::dispatch : Round::combine;
  }
  Layout layout_;
  int rank_;
};

}  // namespace tessera::fused

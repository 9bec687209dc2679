#pragma once

#include "fused/layout.h"

namespace tessera::fused {

enum class TaskKind : int32_t {
  none,
  gate,       ///< decides who goes where, and tells all ranks how many rows come
  shared,     ///< the shared expert of a block of tokens
  dispatch,   ///< a tile of rows to the rank of its expert
  up,         ///< a run of panels of an expert's first product, for a tile
  down,       ///< of its second product
  give_back,  ///< a tile of results to the rank of its tokens
  collect,    ///< the results of a tile to their tokens, which frees its place in the run
  combine,    ///< the sum of the results of a block of tokens
};

/// What a processor is told to do.
struct Task {
  TaskKind kind = TaskKind::none;
  int32_t peer = 0;    ///< whose rows a tile holds; of dispatch: whom they go to
  int32_t expert = 0;  ///< one of those of the rank that computes
  int32_t index = 0;   ///< of the tile among those of this peer and expert; of the block
  int32_t rows = 0;    ///< of products: of all tiles of the slot
  int32_t part = 0;    ///< run of panels
  int32_t slot = 0;    ///< of inner activations; of which tiles, says Scheduler::group
};

/// Tiles of one expert that are computed as one, with no more rows than a slot has: its weights are
/// read once.
struct TileGroup {
  static constexpr int kMost = 8;
  Task tiles[kMost]{};
  int32_t count = 0, rows = 0;

  void add(const Task& tile) {
    tiles[count++] = tile;
    rows += tile.rows;
  }
};

/// What the ranks of an operator agree on, but for `rank`, and how one of them works.
struct Shape {
  Layout layout{};
  int rank = 0, processors = 1;
  int up_parts = 1, down_parts = 1;  ///< runs of panels of each product
  int slots = 1;                     ///< tiles whose inner activations are there at once
  int blocks = 1;                    ///< of tokens, at most
  int experts = 0;                   ///< of this rank

  /// Rows of a slot, at most: a tile, and where products are not cut half of one more, so that the
  /// few rows behind a full tile need not read the weights once more.
  constexpr int64_t slot_rows() const {
    const int64_t tile = layout.tiles.tile;
    return up_parts == 1 && down_parts == 1 ? tile + tile / 2 : tile;
  }
  /// Rows that may still join so many: what fills up a tile, or few.
  constexpr int64_t room(int64_t rows) const {
    const int64_t whole = layout.tiles.tile - rows, left = slot_rows() - rows;
    const int64_t few = layout.tiles.tile / 4 < left ? layout.tiles.tile / 4 : left;
    return whole > few ? whole : few;
  }
};

/// Blocks of tokens, first to last, that wait for a tile of results.
struct Blocks {
  int32_t first = 0, last = 0;
};

/// What the gate decided, for those who move rows: where it is written by the task and then read.
struct Routed {
  int64_t* sent = nullptr;  ///< [ranks][experts]: my rows for each expert
  Blocks* waits = nullptr;  ///< [ranks][most tiles]: who waits for my tiles

  int64_t* to(const Layout& layout, int peer) const {
    return sent + int64_t{peer} * layout.experts;
  }
  /// Of a tile of mine.
  Blocks& wait(const Layout& layout, const Task& tile) const {
    return waits[int64_t{tile.peer} * layout.most + number(layout, tile)];
  }
  /// Among those that go to the same rank.
  int64_t number(const Layout& layout, const Task& tile) const {
    return layout.first_row(to(layout, tile.peer), tile.expert) / layout.tiles.tile + tile.index;
  }
};

}  // namespace tessera::fused

#pragma once

#include "fused/layout.h"

namespace tessera::fused {

enum class TaskKind : int32_t {
  none,
  gate,       ///< routes tokens, and tells all ranks their row counts
  shared,     ///< the shared expert of a block of tokens
  dispatch,   ///< a tile of rows to the rank of its expert
  up,         ///< a run of panels of an expert's first product, for a tile
  down,       ///< the same for the second product
  give_back,  ///< a tile of results to the rank of its tokens
  collect,    ///< the results of a tile to their tokens; frees the tile's place in the run
  combine,    ///< the sum of the results of a block of tokens
};

/// A processor's task.
struct Task {
  TaskKind kind = TaskKind::none;
  int32_t peer = 0;    ///< owner of a tile's rows; for dispatch: their receiver
  int32_t expert = 0;  ///< index among the computing rank's experts
  int32_t index = 0;   ///< a tile's number for this peer and expert; a block's number
  int32_t rows = 0;    ///< for products: of all tiles of the slot
  int32_t part = 0;    ///< run of panels
  int32_t slot = 0;    ///< inner activations; tiles: see Scheduler::group
};

/// Tiles of an expert computed together, within the rows of a slot: weights are read
/// once.
struct TileGroup {
  static constexpr int kMost = 8;
  Task tiles[kMost]{};
  int32_t count = 0, rows = 0;

  TESSERA_ANYWHERE void add(const Task& tile) {
    tiles[count++] = tile;
    rows += tile.rows;
  }
};

/// The agreement of an operator's ranks, except `rank`, and the settings of a rank's work.
struct Shape {
  Layout layout{};
  int rank = 0, processors = 1;
  int up_parts = 1, down_parts = 1;  ///< runs of panels of each product
  int slots = 1;                     ///< tiles with inner activations at once
  int blocks = 1;                    ///< blocks of tokens, at most
  int experts = 0;                   ///< experts of this rank

  /// Rows of a slot, at most: a tile, and for unsplit products half a tile more, so a few rows
  /// behind a full tile need no second read of the weights.
  constexpr int64_t slot_rows() const {
    const int64_t tile = layout.tiles.tile;
    return up_parts == 1 && down_parts == 1 ? tile + tile / 2 : tile;
  }
  /// Rows to add to this many: to fill a tile, or a few.
  constexpr int64_t room(int64_t rows) const {
    const int64_t whole = layout.tiles.tile - rows, left = slot_rows() - rows;
    const int64_t few = layout.tiles.tile / 4 < left ? layout.tiles.tile / 4 : left;
    return whole > few ? whole : few;
  }
};

/// Blocks of tokens, first to last, in need of a tile's results.
struct Blocks {
  int32_t first = 0, last = 0;
};

/// The gate's decision, for moves of rows: written by its task and then read.
struct Routed {
  int64_t* sent = nullptr;  ///< [ranks][experts]: own rows for each expert
  Blocks* waits = nullptr;  ///< [ranks][most tiles]: blocks in need of own tiles

  TESSERA_ANYWHERE int64_t* to(const Layout& layout, int peer) const {
    return sent + int64_t{peer} * layout.experts;
  }
  /// For an own tile.
  TESSERA_ANYWHERE Blocks& wait(const Layout& layout, const Task& tile) const {
    return waits[int64_t{tile.peer} * layout.most + number(layout, tile)];
  }
  /// The number among tiles to the same rank.
  TESSERA_ANYWHERE int64_t number(const Layout& layout, const Task& tile) const {
    return layout.first_row(to(layout, tile.peer), tile.expert) / layout.tiles.tile + tile.index;
  }
};

}  // namespace tessera::fused

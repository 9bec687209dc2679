#pragma once

#include <cstdint>

// Read by compilers of the host and of a device.
#if defined(__CUDACC__)
#define TESSERA_ANYWHERE __host__ __device__
#else
#define TESSERA_ANYWHERE
#endif

namespace tessera::fused {

/// Rows travel to their experts, and back.
enum class Round : uint8_t { dispatch, combine };
/// Where a rank puts rows before they leave, and where rows arrive.
enum class Side : uint8_t { outgoing, incoming };

/// A row's place in a symmetric buffer: for incoming rows `peer` is the rank that sent them, for
/// outgoing ones the rank that they go to; `expert` is one of the expert rank's own.
struct Place {
  int peer = 0;
  Round round = Round::dispatch;
  Side side = Side::outgoing;
  int expert = 0;
  int64_t row = 0;
};

/// Whether a rank may write there in the buffer of `target`: what it sends to another arrives under
/// its own number, and no other rank writes what leaves (FlashDMoE, definitions 5.3.1 and 5.3.2).
/// So no two ranks write one place (theorem 5.3.1).
TESSERA_ANYWHERE constexpr bool valid_write(int writer, int target, const Place& place) {
  return place.side == Side::incoming ? place.peer == writer : writer == target;
}

/// Rows in whole tiles. A tile that is not full is padded where it lies: only its rows travel.
struct RowTiles {
  int64_t tile = 1;  ///< rows

  TESSERA_ANYWHERE constexpr int64_t count(int64_t rows) const { return (rows + tile - 1) / tile; }
  TESSERA_ANYWHERE constexpr int64_t rounded(int64_t rows) const { return count(rows) * tile; }
  /// Rows of tile i of so many.
  TESSERA_ANYWHERE constexpr int64_t rows_of(int64_t i, int64_t rows) const {
    const int64_t left = rows - i * tile;
    return left < 0 ? 0 : left < tile ? left : tile;
  }
};

TESSERA_ANYWHERE constexpr int64_t whole_lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/// The symmetric buffer of one MoE layer with a fixed capacity, L[peers][rounds][sides][experts]
/// [capacity] rows (FlashDMoE, section 5.3), then a flag of 8 bytes for each tile that may arrive.
/// Equal on all ranks, whatever they hold.
struct FixedLayout {
  int ranks = 1, experts = 1;  ///< experts: the most of any rank
  int64_t capacity = 0;        ///< rows that an expert takes from one rank
  int64_t row_bytes = 0;
  RowTiles tiles{};

  /// Rows of a cell: at least a tile.
  TESSERA_ANYWHERE constexpr int64_t rows() const {
    return capacity < 1 ? tiles.tile : tiles.rounded(capacity);
  }
  /// 4 * ranks * experts * rows() * row_bytes: Size(L).
  TESSERA_ANYWHERE constexpr int64_t row_region() const {
    return int64_t{4} * ranks * experts * rows() * row_bytes;
  }
  TESSERA_ANYWHERE constexpr int64_t flags() const {
    return int64_t{2} * ranks * experts * tiles.count(rows());
  }
  TESSERA_ANYWHERE constexpr int64_t bytes() const {
    return whole_lines(row_region()) + 8 * flags();
  }
  TESSERA_ANYWHERE constexpr int64_t offset(const Place& p) const {
    const int64_t cell =
        ((int64_t{p.peer} * 2 + static_cast<int64_t>(p.round)) * 2 + static_cast<int64_t>(p.side)) *
            experts +
        p.expert;
    return (cell * rows() + p.row) * row_bytes;
  }
  /// Of the tile that an incoming row is in.
  TESSERA_ANYWHERE constexpr int64_t flag_offset(const Place& p) const {
    const int64_t cell = (int64_t{p.peer} * 2 + static_cast<int64_t>(p.round)) * experts + p.expert;
    return whole_lines(row_region()) + 8 * (cell * tiles.count(rows()) + p.row / tiles.tile);
  }
};

/// The same without drops: a rank first sends how many rows each expert gets, then the rows of all
/// of them in one compact run, expert by expert, each from a tile's start. Its bytes depend on the
/// tokens of a rank, not on how they are routed.
struct DroplessLayout {
  int ranks = 1, experts = 1;  ///< experts: the most of any rank
  int64_t assignments = 0;     ///< from one rank to another: tokens * min(top_k, experts) at most
  int64_t row_bytes = 0;
  RowTiles tiles{};

  /// Rows of a run: all assignments and the padding of each expert's last tile, however they are
  /// routed. It is most when every expert begins a tile with one row.
  TESSERA_ANYWHERE constexpr int64_t rows() const {
    const int64_t begun = assignments < experts ? assignments : experts;
    return ((assignments - begun) / tiles.tile + begun) * tiles.tile;
  }
  /// Counts of 8 bytes by (peer, expert), first in the buffer.
  TESSERA_ANYWHERE constexpr int64_t count_offset(int peer, int expert) const {
    return 8 * (int64_t{peer} * experts + expert);
  }
  TESSERA_ANYWHERE constexpr int64_t count_region() const {
    return whole_lines(int64_t{8} * ranks * experts);
  }
  TESSERA_ANYWHERE constexpr int64_t row_region() const {
    return int64_t{4} * ranks * rows() * row_bytes;
  }
  TESSERA_ANYWHERE constexpr int64_t flags() const {
    return int64_t{2} * ranks * tiles.count(rows());
  }
  TESSERA_ANYWHERE constexpr int64_t bytes() const {
    return count_region() + whole_lines(row_region()) + 8 * flags();
  }
  /// Where an expert's rows begin in a run with these counts.
  TESSERA_ANYWHERE constexpr int64_t first_row(const int64_t* counts, int expert) const {
    int64_t row = 0;
    for (int e = 0; e < expert; ++e) row += tiles.rounded(counts[e]);
    return row;
  }
  /// `first`: first_row() of the place's expert.
  TESSERA_ANYWHERE constexpr int64_t offset(const Place& p, int64_t first) const {
    const int64_t run =
        (int64_t{p.peer} * 2 + static_cast<int64_t>(p.round)) * 2 + static_cast<int64_t>(p.side);
    return count_region() + (run * rows() + first + p.row) * row_bytes;
  }
  TESSERA_ANYWHERE constexpr int64_t flag_offset(const Place& p, int64_t first) const {
    const int64_t run = int64_t{p.peer} * 2 + static_cast<int64_t>(p.round);
    return count_region() + whole_lines(row_region()) +
           8 * (run * tiles.count(rows()) + (first + p.row) / tiles.tile);
  }
};

}  // namespace tessera::fused

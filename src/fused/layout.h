#pragma once

#include <cstdint>

/// Marks functions of the protocol: GPUs run the same order of work as CPUs.
#if defined(__CUDACC__)
#define TESSERA_ANYWHERE __host__ __device__
#else
#define TESSERA_ANYWHERE
#endif

namespace tessera::fused {

/// Rows travel to their experts, and back.
enum class Round : uint8_t { dispatch, combine };
/// Places for rows before their departure, and for arriving rows.
enum class Side : uint8_t { outgoing, incoming };

/// A row's place in a symmetric buffer: for incoming rows `peer` is their sender, for outgoing rows
/// their receiver; `expert` belongs to the expert rank.
struct Place {
  int peer = 0;
  Round round = Round::dispatch;
  Side side = Side::outgoing;
  int expert = 0;
  int64_t row = 0;
};

/// True if `writer` may write there in the buffer of `target`: rows for another rank arrive under
/// the sender's number, and only the owner writes outgoing rows (FlashDMoE, definitions 5.3.1 and
/// 5.3.2). So no two ranks write the same place (theorem 5.3.1).
constexpr bool valid_write(int writer, int target, const Place& place) {
  return place.side == Side::incoming ? place.peer == writer : writer == target;
}

/// Rows in whole tiles. A partial tile is padded in place: only its rows travel.
struct RowTiles {
  int64_t tile = 1;  ///< rows

  constexpr int64_t count(int64_t rows) const { return (rows + tile - 1) / tile; }
  constexpr int64_t rounded(int64_t rows) const { return count(rows) * tile; }
  /// Rows of tile i among `rows`.
  constexpr int64_t rows_of(int64_t i, int64_t rows) const {
    const int64_t remaining = rows - i * tile;
    return remaining < 0 ? 0 : remaining < tile ? remaining : tile;
  }
};

constexpr int64_t whole_lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/// The symmetric buffer of an MoE layer: the rows of each expert from each rank, in this
/// epoch and in one before or behind; the rows L[peers][rounds][sides][run] (FlashDMoE,
/// section 5.3); a flag of 8 bytes for each tile to arrive. A run holds a rank's rows
/// for another in a round, by expert, each from a tile's start; in a shorter run, tiles
/// are used again, tile t for t + run_tiles() after the results of t. Equal on all
/// ranks.
struct Layout {
  int ranks = 1, experts = 1;  ///< experts: the most of any rank
  int64_t row_bytes = 0;
  RowTiles tiles{};
  int64_t cell = 0;  ///< rows of an expert in a run; 0: any number, in whole tiles
  int64_t run = 0;   ///< rows of a run: the most under way to a rank at once
  int64_t most = 0;  ///< tiles from a rank to another in an epoch

  /// Each expert takes up to this many rows from a rank, with room for at least a tile.
  static constexpr Layout fixed(int ranks, int experts, int64_t capacity, int64_t row_bytes,
                                RowTiles tiles) {
    const int64_t cell = capacity < 1 ? tiles.tile : tiles.rounded(capacity);
    return {ranks, experts, row_bytes, tiles, cell, experts * cell, experts * cell / tiles.tile};
  }
  /// Without drops: `assignments` from a rank to another, at most tokens * min(top_k, experts).
  /// They need the most tiles when every expert begins a tile with a single row. A run has room for
  /// `window` tiles, or for all with 0.
  static constexpr Layout dropless(int ranks, int experts, int64_t assignments, int64_t row_bytes,
                                   RowTiles tiles, int64_t window = 0) {
    const int64_t open_tiles = assignments < experts ? assignments : experts;
    const int64_t most = (assignments - open_tiles) / tiles.tile + open_tiles;
    const int64_t room = window > 0 && window < most ? window : most;
    return {ranks, experts, row_bytes, tiles, 0, room * tiles.tile, most};
  }

  constexpr int64_t count_region() const { return whole_lines(int64_t{2} * 8 * ranks * experts); }
  /// 4 * ranks * run * row_bytes; with a capacity Size(L) of the paper, run = experts * cell.
  constexpr int64_t row_region() const { return int64_t{4} * ranks * run * row_bytes; }
  constexpr int run_tiles() const { return static_cast<int>(run / tiles.tile); }
  constexpr int64_t flags() const { return int64_t{2} * ranks * run_tiles(); }
  constexpr int64_t bytes() const {
    return count_region() + whole_lines(row_region()) + 8 * flags();
  }

  /// The offset of the word with a peer's row count for an expert in an epoch.
  constexpr int64_t count_offset(uint64_t epoch, int peer, int expert) const {
    const auto half = static_cast<int64_t>(epoch & 1);
    return 8 * ((half * ranks + peer) * experts + expert);
  }
  /// The first row of an expert in a run with these counts.
  constexpr int64_t first_row(const int64_t* counts, int expert) const {
    if (cell > 0) return expert * cell;
    int64_t row = 0;
    for (int e = 0; e < expert; ++e) row += tiles.rounded(counts[e]);
    return row;
  }
  /// True if these rows of a rank fit, by expert.
  constexpr bool fits(const int64_t* counts) const {
    int64_t sum = 0;
    for (int e = 0; e < experts; ++e) {
      if (counts[e] < 0 || counts[e] > (cell > 0 ? cell : most * tiles.tile)) return false;
      sum += tiles.count(counts[e]);
    }
    return sum <= most;
  }
  /// The number of a place's tile in its run; `first`: first_row() of its expert.
  constexpr int64_t number(const Place& p, int64_t first) const {
    return (first + p.row) / tiles.tile;
  }
  constexpr int64_t offset(const Place& p, int64_t first) const {
    const int64_t runs =
        (int64_t{p.peer} * 2 + static_cast<int64_t>(p.round)) * 2 + static_cast<int64_t>(p.side);
    const int64_t row = number(p, first) % run_tiles() * tiles.tile + (first + p.row) % tiles.tile;
    return count_region() + (runs * run + row) * row_bytes;
  }
  /// The flag of an incoming row's tile.
  constexpr int64_t flag_offset(const Place& p, int64_t first) const {
    return flag_offset(p.peer, p.round, number(p, first) % run_tiles());
  }
  constexpr int64_t flag_offset(int peer, Round round, int64_t tile_of_run) const {
    const int64_t runs = int64_t{peer} * 2 + static_cast<int64_t>(round);
    return count_region() + whole_lines(row_region()) + 8 * (runs * run_tiles() + tile_of_run);
  }
};

}  // namespace tessera::fused

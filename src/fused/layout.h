#pragma once

#include <cstdint>

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
constexpr bool valid_write(int writer, int target, const Place& place) {
  return place.side == Side::incoming ? place.peer == writer : writer == target;
}

/// Rows in whole tiles. A tile that is not full is padded where it lies: only its rows travel.
struct RowTiles {
  int64_t tile = 1;  ///< rows

  constexpr int64_t count(int64_t rows) const { return (rows + tile - 1) / tile; }
  constexpr int64_t rounded(int64_t rows) const { return count(rows) * tile; }
  /// Rows of tile i of so many.
  constexpr int64_t rows_of(int64_t i, int64_t rows) const {
    const int64_t left = rows - i * tile;
    return left < 0 ? 0 : left < tile ? left : tile;
  }
};

constexpr int64_t whole_lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/// The symmetric buffer of one MoE layer: how many rows each expert gets of each rank, in this
/// epoch and in one before or behind it; the rows L[peers][rounds][sides][run] (FlashDMoE, section
/// 5.3); a flag of 8 bytes for each tile that may arrive. A run is what one rank sends another in a
/// round, expert by expert, each from a tile's start; where it is shorter than what they send, its
/// tiles are used anew, tile t for t + run_tiles() once the results of t are back. Equal on all
/// ranks, whatever they hold.
struct Layout {
  int ranks = 1, experts = 1;  ///< experts: the most of any rank
  int64_t row_bytes = 0;
  RowTiles tiles{};
  int64_t cell = 0;  ///< rows of an expert's part of a run; 0: as many as come, in whole tiles
  int64_t run = 0;   ///< rows of a run: at most so many are on their way to one rank at once
  int64_t most = 0;  ///< tiles that one rank may send another in an epoch

  /// Each expert takes so many rows from one rank, and has room for them, at least for a tile.
  static constexpr Layout fixed(int ranks, int experts, int64_t capacity, int64_t row_bytes,
                                RowTiles tiles) {
    const int64_t cell = capacity < 1 ? tiles.tile : tiles.rounded(capacity);
    return {ranks, experts, row_bytes, tiles, cell, experts * cell, experts * cell / tiles.tile};
  }
  /// Without drops: `assignments` from one rank to another, tokens * min(top_k, experts) at most.
  /// They take most tiles when every expert begins one with one row. A run has room for `window`
  /// tiles, or for all of them, however they are routed: 0.
  static constexpr Layout dropless(int ranks, int experts, int64_t assignments, int64_t row_bytes,
                                   RowTiles tiles, int64_t window = 0) {
    const int64_t begun = assignments < experts ? assignments : experts;
    const int64_t most = (assignments - begun) / tiles.tile + begun;
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

  /// Of the word that says how many rows a peer sends to an expert in an epoch.
  constexpr int64_t count_offset(uint64_t epoch, int peer, int expert) const {
    const auto half = static_cast<int64_t>(epoch & 1);
    return 8 * ((half * ranks + peer) * experts + expert);
  }
  /// Where an expert's rows begin in a run with these counts.
  constexpr int64_t first_row(const int64_t* counts, int expert) const {
    if (cell > 0) return expert * cell;
    int64_t row = 0;
    for (int e = 0; e < expert; ++e) row += tiles.rounded(counts[e]);
    return row;
  }
  /// Whether there is room for so many rows of one rank, by expert.
  constexpr bool fits(const int64_t* counts) const {
    int64_t sum = 0;
    for (int e = 0; e < experts; ++e) {
      if (counts[e] < 0 || counts[e] > (cell > 0 ? cell : most * tiles.tile)) return false;
      sum += tiles.count(counts[e]);
    }
    return sum <= most;
  }
  /// Of the tile of a place, among those of its run; `first`: first_row() of its expert.
  constexpr int64_t number(const Place& p, int64_t first) const {
    return (first + p.row) / tiles.tile;
  }
  constexpr int64_t offset(const Place& p, int64_t first) const {
    const int64_t runs =
        (int64_t{p.peer} * 2 + static_cast<int64_t>(p.round)) * 2 + static_cast<int64_t>(p.side);
    const int64_t row = number(p, first) % run_tiles() * tiles.tile + (first + p.row) % tiles.tile;
    return count_region() + (runs * run + row) * row_bytes;
  }
  /// Of the tile that an incoming row is in.
  constexpr int64_t flag_offset(const Place& p, int64_t first) const {
    return flag_offset(p.peer, p.round, number(p, first) % run_tiles());
  }
  constexpr int64_t flag_offset(int peer, Round round, int64_t tile_of_run) const {
    const int64_t runs = int64_t{peer} * 2 + static_cast<int64_t>(round);
    return count_region() + whole_lines(row_region()) + 8 * (runs * run_tiles() + tile_of_run);
  }
};

}  // namespace tessera::fused

#pragma once

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cuda/registers.h"

namespace tessera::kernels::cuda {

constexpr int kSm90Stages = 2;  // blocks of keys and of values in flight

/// Sizes of a tile for heads of up to `Width` channels; each of `Groups` warpgroups computes 64
/// queries.
template <int Width, int Groups>
struct Sm90Tile {
  static constexpr int kQueries = 64 * Groups;
  static constexpr int kComputing = kGroup * Groups, kComputingWarps = kComputing / 32;
  static constexpr int kThreads = kComputing + kGroup;
  /// In each group of this many pairs of exponentials, a polynomial computes one; 0: none
  /// (FlashAttention-4). The fastest setting on an H200, docs/results/gpu.md; heads above 128 were
  /// not tried.
  static constexpr int kPolynomials = Width > 64 && Width <= 128 ? 16 : 0;
  static constexpr int kKeys = Width > 128 ? 64 : 128;
  static constexpr int kSteps = (Width + 15) / 16;   // steps of 16 channels
  static constexpr int kChunks = (Width + 63) / 64;  // chunks of 64 channels, 128 bytes a row
  /// Channels of a result: products read values in whole tiles of 64, the only supported layout
  /// (PTX ISA, "Canonical layouts"); zeros beyond the head.
  static constexpr int kOut = kChunks * 64;
  static constexpr int kQueryBytes = kQueries * 128 * kChunks;
  static constexpr int kBlockBytes = kKeys * 128 * kChunks;
  /// Queries, blocks, barriers, and padding for alignment to 1,024.
  static constexpr int64_t kShared = 1024 + kQueryBytes + 2 * kSm90Stages * kBlockBytes + 256;
};

/// Warpgroups for heads of up to 64 channels: three, because three hide more of each other's
/// exponentials, unless their larger tiles fill the multiprocessors worse. A tile of three took 5/4
/// of the time of a tile of two on an H200.
constexpr int narrow_groups(int64_t queries, int64_t heads, int64_t multiprocessors) {
  const auto waves = [&](int64_t tile) {
    const int64_t tiles = (queries + tile - 1) / tile * heads;
    return (tiles + multiprocessors - 1) / multiprocessors;
  };
  return waves(192) * 5 <= waves(128) * 4 ? 3 : 2;
}

/// Attention of bf16 heads with a multiple of eight channels up to 256 and rows of whole 16-byte
/// words, on a GPU of compute capability 9.
void attention_sm90(const AttentionArgs& args);

}  // namespace tessera::kernels::cuda

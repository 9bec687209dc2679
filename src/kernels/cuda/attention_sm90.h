#pragma once

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cuda/registers.h"

namespace tessera::kernels::cuda {

constexpr int kSm90Stages = 2;  // blocks of keys and of values under way

/// Sizes of a tile for heads of up to `Width` channels, of which so many warpgroups compute 64
/// queries each.
template <int Width, int Groups>
struct Sm90Tile {
  static constexpr int kQueries = 64 * Groups;
  static constexpr int kComputing = kGroup * Groups, kComputingWarps = kComputing / 32;
  static constexpr int kThreads = kComputing + kGroup;
  /// Of so many pairs of exponentials one is a polynomial, as in FlashAttention-4; 0: none. What
  /// was fastest on an H200, docs/results/gpu.md; heads above 128 were not tried.
  static constexpr int kPolynomials = Width > 64 && Width <= 128 ? 16 : 0;
  static constexpr int kKeys = Width > 128 ? 64 : 128;
  static constexpr int kSteps = (Width + 15) / 16;   // of 16 channels
  static constexpr int kChunks = (Width + 63) / 64;  // of 64 channels, 128 bytes a row
  /// Channels of a result: values come to products in whole tiles of 64, as their layout knows no
  /// other (PTX ISA, "Canonical layouts"); behind the head there are zeros.
  static constexpr int kOut = kChunks * 64;
  static constexpr int kQueryBytes = kQueries * 128 * kChunks;
  static constexpr int kBlockBytes = kKeys * 128 * kChunks;
  /// Queries, blocks, barriers, and room to begin at a multiple of 1,024.
  static constexpr int64_t kShared = 1024 + kQueryBytes + 2 * kSm90Stages * kBlockBytes + 256;
};

/// Warpgroups that compute heads of up to 64 channels: three, which hide more of each other's
/// exponentials, unless their larger tiles fill the multiprocessors worse. A tile of three took 5/4
/// of the time of one of two on an H200.
constexpr int narrow_groups(int64_t queries, int64_t heads, int64_t multiprocessors) {
  const auto waves = [&](int64_t tile) {
    const int64_t tiles = (queries + tile - 1) / tile * heads;
    return (tiles + multiprocessors - 1) / multiprocessors;
  };
  return waves(192) * 5 <= waves(128) * 4 ? 3 : 2;
}

/// Attention of bf16 heads of a multiple of eight channels up to 256, rows of whole 16-byte words,
/// on a GPU of compute capability 9.
void attention_sm90(const AttentionArgs& args);

}  // namespace tessera::kernels::cuda

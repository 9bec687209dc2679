#pragma once

#include <cstdint>

namespace tessera::kernels::cuda {

constexpr int kAttentionWarps = 4, kAttentionThreads = kAttentionWarps * 32;
constexpr int kAttentionQueries = kAttentionWarps * 16;  // queries of a tile
constexpr int kMostHeadDim = 256;                        // maximum on tensor cores

// For attention in f32: pieces of 64 queries, keys or channels, four of them in shared memory.
constexpr int kPlainBlock = 256, kPlainTile = 64, kPlainPitch = kPlainTile + 4;
constexpr int64_t kPlainShared = int64_t{4} * kPlainTile * kPlainPitch * 4;
constexpr int kMostPlainHeadDim = 8 * kPlainTile;

constexpr int kWideThreads = 256, kWideQueries = 64;
constexpr int kMostWideHeadDim = 512;
constexpr int kWideGroup = 64;  // channels shared by four warps

/// Shared memory of attention_wide_kernel.
template <int Keys>
struct WideTile {
  static constexpr int kPitch = kMostWideHeadDim + 8, kScorePitch = Keys + 8;
  /// Queries, a block of keys and of values, probabilities, scores, factors.
  static constexpr int64_t kShared =
      int64_t{kWideQueries + 2 * Keys} * kPitch * 2 + int64_t{kWideQueries} * (kScorePitch * 6 + 4);
};

/// Keys in a block of attention_wide_kernel for a shared memory limit in bytes: 64 on Hopper, 32 on
/// A100; 0 if too small.
constexpr int wide_keys(int64_t most_shared) {
  return WideTile<64>::kShared <= most_shared ? 64 : WideTile<32>::kShared <= most_shared ? 32 : 0;
}

/// Kernel for a head: `width` is head_dim rounded up to a compiled width, 0 for the wide kernel or
/// f32; `keys` is the number of keys in a block.
struct AttentionPlan {
  int width = 0, keys = 0;
  /// Bytes of shared memory: queries, and two blocks of keys and of values, in rows of width + 8.
  constexpr int64_t shared() const {
    return int64_t{kAttentionQueries + 4 * keys} * (width + 8) * 2;
  }
};

/// `words`: every row of a head can be read 16 bytes at a time.
constexpr AttentionPlan attention_plan(bool bf16, int head_dim, bool words) {
  if (!bf16 || !words || head_dim % 8 != 0 || head_dim > kMostHeadDim) return {};
  for (int width : {64, 80, 128})
    if (head_dim <= width) return {width, 64};
  return {256, 16};
}

}  // namespace tessera::kernels::cuda

#pragma once

#include <cstdint>

namespace tessera::kernels::cuda {

constexpr int kAttentionWarps = 4, kAttentionThreads = kAttentionWarps * 32;
constexpr int kAttentionQueries = kAttentionWarps * 16;  // of a tile
constexpr int kMostHeadDim = 256;                        // on tensor cores
constexpr int kMostPlainHeadDim = 512;

/// Which kernel serves a head: `width` is head_dim rounded up to what is compiled, 0 for the plain
/// kernel; `keys` are those of a block.
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

#pragma once

#include <cstdint>

#include "kernels/attention.h"

namespace tessera::kernels::cuda {

constexpr int kSm90Queries = 128;  // of a tile: 64 a warpgroup
constexpr int kSm90Stages = 2;     // blocks of keys and of values under way

/// Sizes of a tile for heads of up to `Width` channels.
template <int Width>
struct Sm90Tile {
  static constexpr int kKeys = Width > 128 ? 64 : 128;
  static constexpr int kSteps = (Width + 15) / 16;   // of 16 channels
  static constexpr int kChunks = (Width + 63) / 64;  // of 64 channels, 128 bytes a row
  /// Channels of a result: values come to products in whole tiles of 64, as their layout knows no
  /// other (PTX ISA, "Canonical layouts"); behind the head there are zeros.
  static constexpr int kOut = kChunks * 64;
  static constexpr int kQueryBytes = kSm90Queries * 128 * kChunks;
  static constexpr int kBlockBytes = kKeys * 128 * kChunks;
  /// Queries, blocks, barriers, and room to begin at a multiple of 1,024.
  static constexpr int64_t kShared = 1024 + kQueryBytes + 2 * kSm90Stages * kBlockBytes + 256;
};

/// Attention of bf16 heads of a multiple of eight channels up to 256, rows of whole 16-byte words,
/// on a GPU of compute capability 9.
void attention_sm90(const AttentionArgs& args);

}  // namespace tessera::kernels::cuda

#pragma once

#include <cstdint>
#include <span>

#include "tensor/tensor.h"

namespace tessera::ops {

using tensor::DType;
using tensor::Tensor;

/// Cosines and sines of the angles position * frequency, f32 [tokens, pairs] each.
struct RotaryTable {
  Tensor cos, sin;
};
/// Angles position * theta^(-i / pairs), i < pairs, of each position (RoPE, Su et al. 2021).
/// `rotated_pairs`: pairs from this index on have angle 0 (proportional RoPE, Gemma 4); -1: none.
RotaryTable rotary_table(std::span<const int64_t> positions, int64_t pairs, double theta,
                         tensor::Device device = tensor::Device::cpu, int64_t rotated_pairs = -1);

/// How the channels of a head form pairs: (i, i + pairs), or neighbours (2i, 2i + 1).
enum class RotaryPairs : uint8_t { halves, neighbours };

/// x [tokens, heads * head_dim] with the first 2 * pairs channels of every head rotated by the
/// token's angles, in f32; other channels are copied (partial rotary). The result has the dtype of
/// x. A row depends only on the same row and angles. Writes to `into` if given; `into` must not be
/// x. Throws Error(usage) for mismatched sizes.
Tensor rope(const Tensor& x, const RotaryTable& table, int64_t head_dim,
            RotaryPairs pairs = RotaryPairs::halves, const Tensor& into = {});

}  // namespace tessera::ops

#pragma once

#include "tensor/tensor.h"

namespace tessera::ops {

using tensor::Tensor;

/// Self-attention of a text with a bias on the scores instead of a scale (T5, Raffel et al. 2020):
/// q, k, v [tokens, heads * head_dim] f32 or bf16, views allowed -> the same shape and dtype.
/// `bias` f32 [heads, 2 * tokens - 1] is added by distance, at key - query + tokens - 1. Every
/// query sees the first `visible` keys; with no keys the result is zeros. Only the scores of a
/// single head are in memory at a time. Throws Error(usage) for mismatched shapes.
Tensor biased_attention(const Tensor& q, const Tensor& k, const Tensor& v, int heads,
                        const Tensor& bias, int64_t visible);

}  // namespace tessera::ops

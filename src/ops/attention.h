#pragma once

#include <cstdint>
#include <span>

#include "tensor/tensor.h"

namespace tessera::ops {

using tensor::DType;
using tensor::Tensor;

/// Queries [q_begin, q_end) see keys [k_begin, k_end). Queries in no span give zeros and a
/// log-sum-exp of -inf; so do queries whose key range is empty.
struct AttentionSpan {
  int64_t q_begin, q_end, k_begin, k_end;
};

struct AttentionOptions {
  float scale = 0;        ///< 0: 1 / sqrt(head_dim)
  Tensor* lse = nullptr;  ///< receives f32 [tokens_q, heads] if set: log of the sum of exponentials
  bool wide = false;      ///< the result is f32, the dtype of the sums
  /// Scores from queries and keys in int8 (kernels/attention.h), for bf16 on CPUs.
  bool int8_scores = false;
};

/// Scaled dot-product attention over packed rows of uneven lengths (no padding, no mask). q
/// [tokens_q, heads * head_dim], k and v [tokens_k, kv_heads * head_dim], views allowed; heads is a
/// multiple of kv_heads; head_dim up to 512 (fastest: a multiple of 8). Inputs are f32 or bf16; the
/// result has the same dtype, or f32 with `wide`. Softmax and sums are f32, and the score matrix is
/// never materialised (online softmax; FlashAttention, Dao 2022). A query's result depends only on
/// the query's row and the keys of its span.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, int heads, int kv_heads,
                 std::span<const AttentionSpan> spans, const AttentionOptions& options = {});

}  // namespace tessera::ops

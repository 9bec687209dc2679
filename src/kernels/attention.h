#pragma once

#include <cstdint>

#include "kernels/bf16_path.h"
#include "tensor/dtype.h"

namespace tessera::kernels {

struct AttentionRange {
  int64_t q_begin, q_end, k_begin, k_end;
};

/// Strides in elements from token to token; a head's channels are dense.
struct AttentionArgs {
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  int64_t q_stride = 0, k_stride = 0, v_stride = 0;
  int64_t q_tokens = 0, k_tokens = 0;  ///< number of rows; spans may skip some
  void* out = nullptr;
  int64_t out_stride = 0;
  tensor::DType dtype = tensor::DType::f32;  ///< dtype of q, k, v and, unless wide, out
  bool wide = false;                         ///< out is f32
  bool int8_scores = false;                  ///< bf16 only: see reference::attention
  int heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 1;  ///< positive
  const AttentionRange* spans = nullptr;
  int64_t span_count = 0;
  float* lse = nullptr;  ///< [tokens_q, heads] or null
};

namespace reference {
/// Plain loops with f64 sums: the definition of correct results. With int8_scores, scores are
/// products of integers with f32 scales for each query and each key of a head; the mean of a span's
/// keys is subtracted before, which changes no result (SageAttention, Zhang et al. 2024, sections
/// 4.2 and 4.3). Values and probabilities are not quantised.
void attention(const AttentionArgs& args);
}  // namespace reference
namespace avx2 {
/// Like avx512::attention, with fused multiply-adds; int8_scores with products of 16-bit integers.
void attention(const AttentionArgs& args);
}  // namespace avx2
namespace avx512 {
/// Tiled with online softmax. f32 uses fused multiply-adds; bf16 the same after widening, or dot
/// products with probabilities rounded to bf16. int8_scores with VNNI.
void attention(const AttentionArgs& args);
void attention(Bf16Path unit, const AttentionArgs& args);
}  // namespace avx512
namespace cuda {
/// Tensor cores with online softmax for bf16 heads of up to 512 channels; on compute capability 9,
/// warpgroups for up to 256. f32 fused multiply-adds for f32 and other heads of up to 512 channels.
void attention(const AttentionArgs& args);
}  // namespace cuda

}  // namespace tessera::kernels

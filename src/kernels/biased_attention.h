#pragma once

#include <cstdint>

#include "kernels/unit.h"
#include "tensor/dtype.h"

namespace tessera::kernels {

/// Attention of one text to itself with a bias by distance and no scale: for each query t and head
/// h, e[j] = exp(q[t] . k[j] + bias[h, j - t + tokens - 1] - largest), j < visible, in f32, and
/// out[t] = sum of round(e[j]) * v[j] / sum of e[j], where round() is to `dtype`.
struct BiasedAttentionArgs {
  const void *q = nullptr, *k = nullptr, *v = nullptr;  ///< [tokens, heads * head_dim]
  int64_t q_stride = 0, k_stride = 0, v_stride = 0;
  tensor::DType dtype = tensor::DType::f32;  ///< of q, k, v and out: f32 or bf16
  int64_t tokens = 0, heads = 0, head_dim = 0;
  int64_t visible = 0;          ///< 1 to tokens
  const float* bias = nullptr;  ///< [heads, 2 * tokens - 1]
  int64_t bias_stride = 0;
  void* out = nullptr;
  int64_t out_stride = 0;
};

namespace reference {
/// Plain loops, sums in f64: defines correct.
void biased_attention(const BiasedAttentionArgs& args);
}  // namespace reference
namespace avx2 {
/// As attention, past its keys tile by tile against the largest so far; no probability is rounded.
void biased_attention(const BiasedAttentionArgs& args);
}  // namespace avx2
namespace avx512 {
/// The same in wider vectors; by dot products of bf16 probabilities are rounded.
void biased_attention(const BiasedAttentionArgs& args);
void biased_attention(Unit unit, const BiasedAttentionArgs& args);
}  // namespace avx512
namespace cuda {
/// As cuda::attention in f32; bf16 probabilities, against the largest so far, are rounded.
void biased_attention(const BiasedAttentionArgs& args);
}  // namespace cuda

}  // namespace tessera::kernels

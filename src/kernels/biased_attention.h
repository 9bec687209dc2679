#pragma once

#include <cstdint>

#include "kernels/bf16_path.h"
#include "tensor/dtype.h"

namespace tessera::kernels {

/// Self-attention over a text with a bias by distance and no scale: for each query t and head h,
/// e[j] = exp(q[t] . k[j] + bias[h, j - t + tokens - 1] - largest), j < visible, in f32, and out[t]
/// = sum of round(e[j]) * v[j] / sum of e[j], where round() is to `dtype`.
struct BiasedAttentionArgs {
  const void *q = nullptr, *k = nullptr, *v = nullptr;  ///< [tokens, heads * head_dim]
  int64_t q_stride = 0, k_stride = 0, v_stride = 0;
  tensor::DType dtype = tensor::DType::f32;  ///< dtype of q, k, v and out: f32 or bf16
  int64_t tokens = 0, heads = 0, head_dim = 0;
  int64_t visible = 0;          ///< 1 to tokens
  const float* bias = nullptr;  ///< [heads, 2 * tokens - 1]
  int64_t bias_stride = 0;
  void* out = nullptr;
  int64_t out_stride = 0;
};

namespace reference {
/// Plain loops with f64 sums: the definition of correct results.
void biased_attention(const BiasedAttentionArgs& args);
}  // namespace reference
namespace avx2 {
/// Like attention, with keys in tiles and a running maximum; probabilities are not rounded.
void biased_attention(const BiasedAttentionArgs& args);
}  // namespace avx2
namespace avx512 {
/// Same in wider vectors; with bf16 dot products, probabilities are rounded.
void biased_attention(const BiasedAttentionArgs& args);
void biased_attention(Bf16Path unit, const BiasedAttentionArgs& args);
}  // namespace avx512
namespace cuda {
/// Like cuda::attention in f32; bf16 probabilities, relative to the running maximum, are rounded.
void biased_attention(const BiasedAttentionArgs& args);
}  // namespace cuda

}  // namespace tessera::kernels

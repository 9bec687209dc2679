#pragma once

#include <cstdint>

#include "kernels/unit.h"
#include "tensor/dtype.h"

namespace tessera::kernels {

struct AttentionRange {
  int64_t q_begin, q_end, k_begin, k_end;
};

/// Strides in elements from token to token; a head's channels are dense.
struct AttentionArgs {
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  int64_t q_stride = 0, k_stride = 0, v_stride = 0;
  int64_t q_tokens = 0, k_tokens = 0;  ///< rows that there are; spans may leave some out
  void* out = nullptr;
  int64_t out_stride = 0;
  tensor::DType dtype = tensor::DType::f32;  ///< of q, k, v and, unless wide, out: f32 or bf16
  bool wide = false;                         ///< out is f32
  int heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 1;  ///< above 0
  const AttentionRange* spans = nullptr;
  int64_t span_count = 0;
  float* lse = nullptr;  ///< [tokens_q, heads] or null
};

namespace reference {
/// Plain loops, sums in f64: defines correct.
void attention(const AttentionArgs& args);
}  // namespace reference
namespace avx2 {
/// As avx512::attention by fused multiply-adds.
void attention(const AttentionArgs& args);
}  // namespace avx2
namespace avx512 {
/// Tiled with online softmax. f32 by fused multiply-adds; bf16 by these too, widened, or by dot
/// products, for which probabilities are rounded to bf16.
void attention(const AttentionArgs& args);
void attention(Unit unit, const AttentionArgs& args);
}  // namespace avx512
namespace cuda {
/// bf16 heads of up to 512 channels in tiles on tensor cores with online softmax, those of up to
/// 256 on compute capability 9 by warpgroups; f32 and other heads of up to 512 in f32
/// by fused multiply-adds.
void attention(const AttentionArgs& args);
}  // namespace cuda

}  // namespace tessera::kernels

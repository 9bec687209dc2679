#include "kernels/biased_attention.h"

#if defined(__x86_64__)
#include "kernels/avx512/flash.h"

namespace tessera::kernels::avx512 {

void biased_attention(Unit unit, const BiasedAttentionArgs& a) {
  if (a.dtype == DType::f32) return simd::biased_attention(a);
  const AttentionRange span{0, a.tokens, 0, a.visible};
  const int heads = static_cast<int>(a.heads);
  run_attention(attention_engine(a.dtype, unit),
                {.q = a.q,
                 .k = a.k,
                 .v = a.v,
                 .q_stride = a.q_stride,
                 .k_stride = a.k_stride,
                 .v_stride = a.v_stride,
                 .q_tokens = a.tokens,
                 .k_tokens = a.visible,
                 .out = a.out,
                 .out_stride = a.out_stride,
                 .dtype = a.dtype,
                 .heads = heads,
                 .kv_heads = heads,
                 .head_dim = static_cast<int>(a.head_dim),
                 .spans = &span,
                 .span_count = 1},
                {a.bias, a.bias_stride, a.tokens});
}

void biased_attention(const BiasedAttentionArgs& args) { biased_attention(active_unit(), args); }

}  // namespace tessera::kernels::avx512
#endif  // __x86_64__

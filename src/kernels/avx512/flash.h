#pragma once

#if defined(__x86_64__)
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/avx512/product.h"
#include "kernels/avx512/vector.h"
#include "kernels/unit.h"

// What the attentions of AVX-512 and AMX share: who packs keys and values, who attends, and the
// running softmax (FlashAttention; Dao et al. 2022, section 3.1).
namespace tessera::kernels::avx512 {

/// Added to the scaled scores: data[head * stride + tokens - 1 + key - query].
struct DistanceBias {
  const float* data = nullptr;
  int64_t stride = 0, tokens = 0;
};

/// Keys and values of a key head of a span, packed once for all its queries.
struct PackedHead {
  const AttentionArgs* args = nullptr;
  AttentionRange span{};
  int64_t kv_head = 0;
  DistanceBias bias;
  std::byte* packed = nullptr;

  int64_t keys() const { return span.k_end - span.k_begin; }
  int64_t queries() const { return span.q_end - span.q_begin; }
  /// Biases of a query, counted from the start of the span, by key; null: there are none.
  const float* bias_of(int64_t head, int64_t query) const {
    return bias.data ? bias.data + head * bias.stride + bias.tokens - 1 - query : nullptr;
  }
};

/// One way to compute attention. Blocks of keys are counted from the first key of the span, and a
/// query goes past them in order, so its bits do not depend on other queries.
struct AttentionEngine {
  int64_t keys;   ///< of a block
  int64_t tile;   ///< queries that go past a block together
  int64_t tiles;  ///< of a task: they share what keys and values bring to L2
  int64_t (*packed_bytes)(int64_t head_dim, int64_t keys);
  /// Packs blocks of keys and values.
  void (*pack)(const PackedHead& head, Range blocks);
  /// Queries, counted from the start of the span, of head `query_head`.
  void (*attend)(const PackedHead& head, int64_t query_head, Range queries);
};

/// The whole of attention over an engine: over threads by span, head and queries.
void run_attention(const AttentionEngine& engine, const AttentionArgs& args,
                   const DistanceBias& bias);
/// The engine of a unit; f32 has one engine alone.
const AttentionEngine& attention_engine(DType dtype, Unit unit);

/// Subnormals count as zeros while it lives: one costs 150 cycles, and is no probability.
class FlushSubnormals {
 public:
  FlushSubnormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
  ~FlushSubnormals() { _mm_setcsr(before_); }
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  unsigned before_;
};

}  // namespace tessera::kernels::avx512

TESSERA_AVX512_BEGIN
namespace tessera::kernels::avx512 {

inline __m512 load16(const float* from, __mmask16 keep) {
  return _mm512_maskz_loadu_ps(keep, from);
}
inline __m512 load16(const tensor::BFloat16* from, __mmask16 keep) {
  return widen(_mm256_maskz_loadu_epi16(keep, from));
}

/// 2^x to 8e-5, any float: a fiftieth of what rounding to bf16 loses.
inline __m512 exp2_coarse(__m512 x) {
  const __m512 f = _mm512_reduce_ps(x, 0x09);  // x - floor(x)
  __m512 p = _mm512_set1_ps(0.078024523f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.22606716f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.69583354f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.99992522f));
  return _mm512_scalef_ps(p, x);
}
template <bool coarse>
inline __m512 exp2_of(__m512 x) {
  if constexpr (coarse) return exp2_coarse(x);
  return exp2(x);
}

/// A row is rescaled when its maximum has grown by more than 2^8: almost never, and by its own
/// history alone.
constexpr float kSlack = 8;

/// Writes the result of a query and its log-sum-exp. `values` of `columns`, not yet divided by the
/// sum; `maximum` and sums in powers of two.
template <class Load>
inline void finish_query(const AttentionArgs& args, int64_t query, int64_t head, float maximum,
                         float sum, Load&& values) {
  const __m512 inverse = _mm512_set1_ps(1 / sum);
  const int64_t at = query * args.out_stride + head * args.head_dim;
  for (int64_t c = 0; c < args.head_dim; c += 16)
    store(args.out, args.wide ? tensor::DType::f32 : args.dtype, at + c, lanes(args.head_dim - c),
          _mm512_mul_ps(values(c), inverse));
  if (args.lse) args.lse[query * args.heads + head] = (maximum + std::log2(sum)) * 0.69314718f;
}

}  // namespace tessera::kernels::avx512
TESSERA_AVX512_END
#endif  // __x86_64__

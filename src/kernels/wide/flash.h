#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/biased_attention.h"
#include "kernels/wide/product.h"

// Shared parts of the attentions of AVX2 and AVX-512: packing of keys and values, scheduling, and
// the running softmax (FlashAttention; Dao et al. 2022, section 3.1).
namespace tessera::kernels::wide {

/// Bias added to the scaled scores: data[head * stride + tokens - 1 + key - query].
struct DistanceBias {
  const float* data = nullptr;
  int64_t stride = 0, tokens = 0;
};

/// Keys and values of a key head in a span, packed once for all queries.
struct PackedHead {
  const AttentionArgs* args = nullptr;
  AttentionRange span{};
  int64_t kv_head = 0;
  DistanceBias bias;
  std::byte* packed = nullptr;
  float* mean = nullptr;  ///< int8 scores: mean of the keys, by channel
  /// Number of keys seen by each query, nondecreasing; null: all.
  const int64_t* key_counts = nullptr;

  int64_t keys() const { return span.k_end - span.k_begin; }
  int64_t queries() const { return span.q_end - span.q_begin; }
  int64_t seen_by(int64_t query) const { return key_counts ? key_counts[query] : keys(); }
  /// Biases of a query, relative to the start of the span, by key; null: none.
  const float* bias_of(int64_t head, int64_t query) const {
    return bias.data ? bias.data + head * bias.stride + bias.tokens - 1 - query : nullptr;
  }
};

/// An implementation of attention. Blocks of keys are counted from the first key of the span, and a
/// query processes them in order, so the bits of a query do not depend on other queries, nor on
/// unseen keys with finite values.
struct AttentionEngine {
  int64_t keys;   ///< keys of a block
  int64_t tile;   ///< queries that process a block together
  int64_t tiles;  ///< tiles of a task: they share keys and values in L2
  int64_t (*packed_bytes)(int64_t head_dim, int64_t keys);
  /// Writes the mean of all keys; null: not needed.
  void (*find_mean)(const PackedHead& head);
  /// Packs blocks of keys and values.
  void (*pack)(const PackedHead& head, Range blocks);
  /// Computes queries, relative to the start of the span, of head `query_head`.
  void (*attend)(const PackedHead& head, int64_t query_head, Range queries);
};

/// The widest head.
constexpr int64_t kMostChannels = 512;
/// Keys of a block in kernels/wide/attention.inc.
constexpr int64_t kBlockKeys = 64;

/// Runs attention with an engine, parallel over spans, heads and queries.
void run_attention(const AttentionEngine& engine, const AttentionArgs& args,
                   const DistanceBias& bias);
/// Same for attention with a bias.
void run_attention(const AttentionEngine& engine, const BiasedAttentionArgs& args);

/// Treats subnormals as zero during its lifetime: a subnormal costs 150 cycles and is negligible as
/// a probability.
class FlushSubnormals {
 public:
  FlushSubnormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
  ~FlushSubnormals() { _mm_setcsr(before_); }
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  unsigned before_;
};

}  // namespace tessera::kernels::wide
#endif  // __x86_64__

#include "kernels/attention.h"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/simd/vectorised.h"
#include "tensor/scope.h"
#include "tensor/tensor.h"

TESSERA_SIMD_BEGIN
namespace tessera::kernels::simd {
namespace {

constexpr int64_t kLanes = 8, kTwo = 2 * kLanes;  // a step of columns: two vectors
constexpr int kRows = 6;          // queries at once: 12 of 16 registers hold their sums
constexpr int64_t kKeys = 64;     // keys of a tile
constexpr int64_t kQueries = 96;  // queries that share a tile

// clang leaves `aligned` out of account where it stands behind the sign of equality.
using Vector __attribute__((aligned(4), may_alias)) =
    float __attribute__((vector_size(kLanes * 4)));
Vector* at(float* p) { return reinterpret_cast<Vector*>(p); }
const Vector* at(const float* p) { return reinterpret_cast<const Vector*>(p); }

// y[R][columns] (+)= x[R][depth] w[depth][columns]; columns a multiple of kTwo.
template <int R>
void multiply(const float* x, int64_t x_stride, const float* w, int64_t depth, int64_t columns,
              float* y, bool add) {
  for (int64_t c = 0; c < columns; c += kTwo) {
    Vector sum[R][2];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v)
        sum[r][v] = add ? *at(y + r * columns + c + v * kLanes) : Vector{};
    for (int64_t k = 0; k < depth; ++k) {
      const Vector first = *at(w + k * columns + c), second = *at(w + k * columns + c + kLanes);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const float value = x[r * x_stride + k];
        sum[r][0] += value * first;
        sum[r][1] += value * second;
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) *at(y + r * columns + c + v * kLanes) = sum[r][v];
  }
}

using Multiply = void (*)(const float*, int64_t, const float*, int64_t, int64_t, float*, bool);
constexpr std::array<Multiply, kRows> kMultiply = {multiply<1>, multiply<2>, multiply<3>,
                                                   multiply<4>, multiply<5>, multiply<6>};

/// Some queries of a head beside all keys of their span, a tile of keys at a time.
class Chunk {
 public:
  Chunk(const AttentionArgs& a, int64_t queries)
      : a_(a),
        dim_(a.head_dim),
        padded_((dim_ + kTwo - 1) / kTwo * kTwo),
        queries_(queries),
        q_(size(queries * dim_)),
        keys_(size(dim_ * kKeys)),
        values_(size(kKeys * padded_)),
        scores_(size(kRows * kKeys)),
        sums_(size(queries * padded_)),
        top_(size(queries), -std::numeric_limits<float>::infinity()),
        total_(size(queries)) {}

  template <class T>
  void run(const AttentionRange& span, int64_t first, int head) {
    const int64_t from = int64_t{head} * dim_;
    const int64_t kv_from = int64_t{head / (a_.heads / a_.kv_heads)} * dim_;
    for (int64_t r = 0; r < queries_; ++r) {
      const T* q = static_cast<const T*>(a_.q) + (first + r) * a_.q_stride + from;
      for (int64_t c = 0; c < dim_; ++c) q_[size(r * dim_ + c)] = widen(q[c]) * a_.scale;
    }
    for (int64_t k = span.k_begin; k < span.k_end; k += kKeys) {
      const int64_t count = span.k_end - k < kKeys ? span.k_end - k : kKeys;
      copy_tile(static_cast<const T*>(a_.k) + k * a_.k_stride + kv_from,
                static_cast<const T*>(a_.v) + k * a_.v_stride + kv_from, count);
      for (int64_t r = 0; r < queries_; r += kRows)
        add_tile(r, queries_ - r < kRows ? static_cast<int>(queries_ - r) : kRows, count);
    }
    for (int64_t r = 0; r < queries_; ++r) {
      const float total = total_[size(r)], factor = total > 0 ? 1 / total : 0;
      const int64_t to = (first + r) * a_.out_stride + from;
      if (a_.wide)
        write(r, factor, static_cast<float*>(a_.out) + to);
      else
        write(r, factor, static_cast<T*>(a_.out) + to);
      if (a_.lse) a_.lse[(first + r) * a_.heads + head] = top_[size(r)] + std::log(total);
    }
  }

 private:
  static size_t size(int64_t n) { return static_cast<size_t>(n); }

  template <class T>
  void write(int64_t r, float factor, T* out) const {
    for (int64_t c = 0; c < dim_; ++c) narrow(sums_[size(r * padded_ + c)] * factor, out + c);
  }

  // Keys channel by channel, values key by key; zeros behind the last.
  template <class T>
  void copy_tile(const T* k, const T* v, int64_t count) {
    for (int64_t j = 0; j < kKeys; ++j) {
      const bool there = j < count;
      for (int64_t c = 0; c < dim_; ++c)
        keys_[size(c * kKeys + j)] = there ? widen(k[j * a_.k_stride + c]) : 0;
      for (int64_t c = 0; c < dim_; ++c)
        values_[size(j * padded_ + c)] = there ? widen(v[j * a_.v_stride + c]) : 0;
    }
  }

  // Online softmax (Milakov & Gimelshein 2018) of rows [first, first + rows) over one more tile.
  void add_tile(int64_t first, int rows, int64_t count) {
    const Multiply multiply_rows = kMultiply[static_cast<size_t>(rows - 1)];
    multiply_rows(q_.data() + first * dim_, dim_, keys_.data(), dim_, kKeys, scores_.data(), false);
    for (int r = 0; r < rows; ++r) {
      float* score = scores_.data() + r * kKeys;
      float& top = top_[size(first + r)];
      float highest = top;
      for (int64_t j = 0; j < count; ++j) highest = score[j] > highest ? score[j] : highest;
      const float keep = simd::exp(top - highest);
      for (int64_t j = 0; j < kKeys; ++j) score[j] = simd::exp(score[j] - highest);
      for (int64_t j = count; j < kKeys; ++j) score[j] = 0;
      float sum = 0;
      for (int64_t j = 0; j < kKeys; ++j) sum += score[j];
      total_[size(first + r)] = total_[size(first + r)] * keep + sum;
      float* sums = sums_.data() + (first + r) * padded_;
      for (int64_t c = 0; c < padded_; ++c) sums[c] *= keep;
      top = highest;
    }
    multiply_rows(scores_.data(), kKeys, values_.data(), kKeys, padded_,
                  sums_.data() + first * padded_, true);
  }

  const AttentionArgs& a_;
  int64_t dim_, padded_, queries_;
  std::vector<float> q_, keys_, values_, scores_, sums_, top_, total_;
};

}  // namespace

void attention(const AttentionArgs& a) {
  for (int64_t s = 0; s < a.span_count; ++s) {
    const AttentionRange& span = a.spans[s];
    const int64_t chunks = (span.q_end - span.q_begin + kQueries - 1) / kQueries;
    tensor::parallel_tasks(chunks * a.heads, [&](int64_t task) {
      const int64_t first = span.q_begin + task / a.heads * kQueries;
      const int64_t left = span.q_end - first;
      Chunk chunk(a, left < kQueries ? left : kQueries);
      tensor::with_float_type(a.dtype, [&](auto t) {
        chunk.run<decltype(t)>(span, first, static_cast<int>(task % a.heads));
      });
    });
  }
}

}  // namespace tessera::kernels::simd
TESSERA_SIMD_END

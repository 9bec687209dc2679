#pragma once

#include <type_traits>

#include "kernels/cuda/attention_items.cuh"
#include "kernels/cuda/attention_plan.h"

// Attention in f32 by fused multiply-adds with online softmax, for inputs that tensor cores do not
// support. 256 threads share 64 queries and sixteen threads share four queries, so that a warp
// keeps its softmax in registers. Keys come in blocks of 64 from the first on, channels in pieces
// of 64: a query does not depend on others.
namespace tessera::kernels::cuda {

/// Bias added to the scores of a head, by distance; none by default.
struct ScoreBias {
  const float* data = nullptr;  ///< bias of query 0 and key 0; null: none
  bool rounds = false;          ///< probabilities are rounded to bf16
};

/// Shared memory of a thread block: pieces [64, 64] in rows of kPlainPitch.
struct PlainShared {
  float *q, *k, *v, *p;

  __device__ explicit PlainShared(unsigned char* memory) {
    q = reinterpret_cast<float*>(memory);
    k = q + kPlainTile * kPlainPitch;
    v = k + kPlainTile * kPlainPitch;
    p = v + kPlainTile * kPlainPitch;
  }
};

/// Access to rows of heads: f32 by asynchronous copies, bf16 by 16-byte words, anything else by
/// elements.
enum class PlainAccess : uint8_t { copies, words, elements };

/// Rows of a head.
struct PlainRows {
  const void* data;
  DType dtype;
  int64_t stride, at, last;  ///< at: offset of the head; rows from `last` on are zeros
  int head_dim;
};

__device__ inline void load_four(const float* from, float (&v)[4]) {
  const float4 word = *reinterpret_cast<const float4*>(from);
  v[0] = word.x, v[1] = word.y, v[2] = word.z, v[3] = word.w;
}

/// Fetches, or queues the copy of, rows [first, first + 64), channels [channel, channel + 64);
/// zeros beyond the head.
template <PlainAccess Access>
__device__ inline void fetch_piece(float* to, const PlainRows& rows, int64_t first, int channel) {
  const int thread = static_cast<int>(threadIdx.x);
  if constexpr (Access == PlainAccess::copies) {
    const int column = thread % 16 * 4, line = thread / 16;
    const auto* from = static_cast<const float*>(rows.data);
    TESSERA_KEEP_ROLLED
    for (int i = 0; i < kPlainTile / 16; ++i) {
      const int row = line + i * 16;
      const bool valid = first + row < rows.last && channel + column < rows.head_dim;
      cp_async_16(to + row * kPlainPitch + column,
                  valid ? from + (first + row) * rows.stride + rows.at + channel + column : from,
                  valid);
    }
  } else if constexpr (Access == PlainAccess::words) {
    const int column = thread % 8 * 8, line = thread / 8;
    TESSERA_KEEP_ROLLED
    for (int i = 0; i < kPlainTile / 32; ++i) {
      const int row = line + i * 32;
      float v[8] = {};
      if (first + row < rows.last && channel + column < rows.head_dim)
        load<8>(rows.data, DType::bf16, (first + row) * rows.stride + rows.at + channel + column,
                v);
      store<8>(to, DType::f32, row * kPlainPitch + column, v);
    }
  } else {
    const int column = thread % kPlainTile, line = thread / kPlainTile;
    TESSERA_KEEP_ROLLED
    for (int row = line; row < kPlainTile; row += kPlainBlock / kPlainTile) {
      float v[1] = {};
      if (first + row < rows.last && channel + column < rows.head_dim)
        load<1>(rows.data, rows.dtype, (first + row) * rows.stride + rows.at + channel + column, v);
      to[row * kPlainPitch + column] = v[0];
    }
  }
}

/// State of a thread for queries 4 y .. 4 y + 3: channels 4 x .. of each piece, the softmax, and
/// scores of keys x, x + 16, ... of a block, with x = thread % 16 and y = thread / 16.
template <int Pieces>
struct PlainState {
  float out[Pieces][4][4] = {};
  float top[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
  float sum[4] = {};  ///< this thread's part
  float scores[4][4];

  __device__ static int x() { return static_cast<int>(threadIdx.x) % 16; }
  __device__ static int y() { return static_cast<int>(threadIdx.x) / 16; }

  /// scores += Q K^T of a piece.
  __device__ void score(const PlainShared& shared) {
    const float *q = shared.q + 4 * y() * kPlainPitch, *k = shared.k + x() * kPlainPitch;
    TESSERA_UNROLL_SOME
    for (int c = 0; c < kPlainTile; c += 4) {
      float left[4][4], right[4][4];
      TESSERA_UNROLL
      for (int i = 0; i < 4; ++i) {
        load_four(q + i * kPlainPitch + c, left[i]);
        load_four(k + i * 16 * kPlainPitch + c, right[i]);
      }
      TESSERA_UNROLL
      for (int e = 0; e < 4; ++e) TESSERA_UNROLL
      for (int i = 0; i < 4; ++i) TESSERA_UNROLL
      for (int j = 0; j < 4; ++j) scores[i][j] = fmaf(left[i][e], right[j][e], scores[i][j]);
    }
  }

  /// Converts scores to probabilities under the running maximum. Keys from `open` on are masked,
  /// queries from `queries` on have no bias; both are relative to the start of the block, where
  /// `bias` begins.
  __device__ void soften(const PlainShared& shared, float scale, const ScoreBias& bias, int open,
                         int queries) {
    TESSERA_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int row = 4 * y() + i;
      float highest = top[i];
      TESSERA_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int key = x() + 16 * j;
        scores[i][j] *= scale;
        if (bias.data && key < open && row < queries) scores[i][j] += bias.data[key - row];
        if (key >= open) scores[i][j] = -INFINITY;
        highest = fmaxf(highest, scores[i][j]);
      }
      for (int step = 8; step > 0; step /= 2)
        highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, step));
      const float shrink = expf(top[i] - highest);
      top[i] = highest;
      sum[i] *= shrink;
      TESSERA_UNROLL
      for (int j = 0; j < 4; ++j) {
        const float e = expf(scores[i][j] - highest);
        sum[i] += e;
        shared.p[row * kPlainPitch + x() + 16 * j] = bias.rounds ? widen(narrow<BFloat16>(e)) : e;
      }
      TESSERA_UNROLL
      for (int g = 0; g < Pieces; ++g) TESSERA_UNROLL
      for (int e = 0; e < 4; ++e) out[g][i][e] *= shrink;
    }
  }

  /// out += P V of a piece.
  __device__ void mix(const PlainShared& shared, float (&sums)[4][4]) {
    const float *p = shared.p + 4 * y() * kPlainPitch, *v = shared.v + 4 * x();
    TESSERA_UNROLL_SOME
    for (int key = 0; key < kPlainTile; key += 4) {
      float left[4][4], right[4];
      TESSERA_UNROLL
      for (int i = 0; i < 4; ++i) load_four(p + i * kPlainPitch + key, left[i]);
      TESSERA_UNROLL
      for (int j = 0; j < 4; ++j) {
        load_four(v + (key + j) * kPlainPitch, right);
        TESSERA_UNROLL
        for (int i = 0; i < 4; ++i) TESSERA_UNROLL
        for (int e = 0; e < 4; ++e) sums[i][e] = fmaf(left[i][j], right[e], sums[i][e]);
      }
    }
  }
};

/// Writes the rows of a tile.
template <int Pieces, bool Words>
__device__ inline void write_plain(const AttentionArgs& a, const AttentionItem& item,
                                   const PlainState<Pieces>& state) {
  const DType dtype = a.wide ? DType::f32 : a.dtype;
  TESSERA_UNROLL
  for (int i = 0; i < 4; ++i) {
    const float sum = sum_over_lanes(state.sum[i], 16);
    const int64_t query = item.first + 4 * state.y() + i;
    if (query >= item.last) continue;
    const int64_t at = query * a.out_stride + int64_t{item.head} * a.head_dim;
    TESSERA_UNROLL
    for (int g = 0; g < Pieces; ++g) {
      const int channel = g * kPlainTile + 4 * state.x();
      float v[4];
      TESSERA_UNROLL
      for (int e = 0; e < 4; ++e) v[e] = sum > 0 ? state.out[g][i][e] / sum : 0;
      if (Words && channel < a.head_dim) {
        if (dtype == DType::f32)
          *reinterpret_cast<float4*>(static_cast<float*>(a.out) + at + channel) = {v[0], v[1], v[2],
                                                                                   v[3]};
        else
          *reinterpret_cast<uint2*>(static_cast<BFloat16*>(a.out) + at + channel) = {
              pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3])};
      }
      TESSERA_UNROLL
      for (int e = 0; e < 4; ++e) {
        const float one[1] = {v[e]};
        if (!Words && channel + e < a.head_dim) store<1>(a.out, dtype, at + channel + e, one);
      }
    }
    if (a.lse && state.x() == 0)
      a.lse[query * a.heads + item.head] = sum > 0 ? state.top[i] + logf(sum) : -INFINITY;
  }
}

/// Processes a tile, from the item to the result rows.
template <int Pieces, PlainAccess Access>
__device__ inline void attend_f32(const AttentionArgs& a, const AttentionItem& item,
                                  const ScoreBias& bias) {
  const PlainShared shared(dynamic_shared());
  const int64_t kv_at = int64_t{item.head / (a.heads / a.kv_heads)} * a.head_dim;
  const PlainRows q{a.q,       a.dtype,   a.q_stride, int64_t{item.head} * a.head_dim,
                    item.last, a.head_dim};
  const PlainRows k{a.k, a.dtype, a.k_stride, kv_at, item.k_end, a.head_dim};
  const PlainRows v{a.v, a.dtype, a.v_stride, kv_at, item.k_end, a.head_dim};
  const auto fetch_both = [&](int64_t first, int piece, bool queries) {
    if (queries) fetch_piece<Access>(shared.q, q, item.first, piece * kPlainTile);
    fetch_piece<Access>(shared.k, k, first, piece * kPlainTile);
    cp_async_commit();
  };
  const auto fetch_values = [&](int64_t first, int piece) {
    fetch_piece<Access>(shared.v, v, first, piece * kPlainTile);
    cp_async_commit();
  };
  const auto arrive = [] {
    cp_async_wait<0>();
    __syncthreads();
  };
  // A warp without queries only fetches.
  const int queries =
      item.last - item.first < kPlainTile ? static_cast<int>(item.last - item.first) : kPlainTile;
  const bool computes = static_cast<int>(threadIdx.x) / kWarp * 8 < queries;
  PlainState<Pieces> state;
  if (item.k_begin < item.k_end) fetch_both(item.k_begin, 0, true);
  for (int64_t first = item.k_begin; first < item.k_end; first += kPlainTile) {
    const int open =
        item.k_end - first < kPlainTile ? static_cast<int>(item.k_end - first) : kPlainTile;
    TESSERA_UNROLL
    for (int i = 0; i < 16; ++i) state.scores[i / 4][i % 4] = 0;
    TESSERA_KEEP_ROLLED
    for (int piece = 0; piece < Pieces; ++piece) {
      if (piece > 0) {
        __syncthreads();  // the previous piece has been read
        fetch_both(first, piece, true);
      }
      arrive();
      if (piece == Pieces - 1) fetch_values(first, 0);
      if (computes) state.score(shared);
    }
    const ScoreBias here{bias.data ? bias.data + (first - item.first) : nullptr, bias.rounds};
    if (computes) state.soften(shared, a.scale, here, open, queries);
    TESSERA_UNROLL
    for (int piece = 0; piece < Pieces; ++piece) {
      if (piece > 0) {
        __syncthreads();  // the previous piece has been read
        fetch_values(first, piece);
      }
      arrive();
      if (piece == Pieces - 1 && first + kPlainTile < item.k_end)
        fetch_both(first + kPlainTile, 0, Pieces > 1);
      if (computes) state.mix(shared, state.out[piece]);
    }
  }
  write_plain<Pieces, Access != PlainAccess::elements>(a, item, state);
}

/// Resident blocks of a kernel on a multiprocessor, limited by registers.
constexpr int plain_blocks(int pieces, PlainAccess access) {
  return pieces == 1 || (pieces == 2 && access == PlainAccess::copies) ? 2 : 1;
}

/// Calls run(kernel's number of pieces, access) for heads of up to kMostPlainHeadDim.
template <class Run>
void with_plain_kernel(const AttentionArgs& a, const Run& run) {
  const auto with_access = [&](auto pieces) {
    using enum PlainAccess;
    if (!reads_words(a)) return run(pieces, std::integral_constant<PlainAccess, elements>());
    if (a.dtype == DType::f32) return run(pieces, std::integral_constant<PlainAccess, copies>());
    run(pieces, std::integral_constant<PlainAccess, words>());
  };
  if (a.head_dim <= kPlainTile) return with_access(std::integral_constant<int, 1>());
  if (a.head_dim <= 2 * kPlainTile) return with_access(std::integral_constant<int, 2>());
  if (a.head_dim <= 4 * kPlainTile) return with_access(std::integral_constant<int, 4>());
  with_access(std::integral_constant<int, 8>());
}

}  // namespace tessera::kernels::cuda

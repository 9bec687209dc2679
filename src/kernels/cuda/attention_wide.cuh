#pragma once

#include "kernels/cuda/attention_items.cuh"
#include "kernels/cuda/attention_plan.h"

// Attention of bf16 heads too wide for a warp to keep sixteen queries: eight warps share 64
// queries, each with a quarter of the channels of 32 queries; scores and probabilities pass through
// shared memory. Keys come in blocks of fixed size from the first on: a query does not depend on
// others.
namespace tessera::kernels::cuda {

/// Shared memory of a thread block.
template <int Keys>
struct WideShared {
  using Tile = WideTile<Keys>;
  BFloat16 *q, *k, *v, *p;
  float *scores, *factors;  ///< factors: multipliers for rows of sums

  __device__ explicit WideShared(unsigned char* memory) {
    q = reinterpret_cast<BFloat16*>(memory);
    k = q + kWideQueries * Tile::kPitch;
    v = k + Keys * Tile::kPitch;
    p = v + Keys * Tile::kPitch;
    scores = reinterpret_cast<float*>(p + kWideQueries * Tile::kScorePitch);
    factors = scores + kWideQueries * Tile::kScorePitch;
  }
};

/// Softmax of a row, replicated in each of the four threads sharing the row.
struct WideRow {
  float top = -INFINITY, sum = 0;  ///< in units of log2; the sum is partial for each thread
};

/// Queues the copy of rows [first, first + Count) of a head; zeros from `last` on and beyond
/// head_dim up to `channels`.
template <int Count>
__device__ inline void fetch_wide(BFloat16* to, const void* data, int64_t stride, int64_t at,
                                  int64_t first, int64_t last, int head_dim, int channels) {
  constexpr int kChunks = kMostWideHeadDim / 8, kLines = kWideThreads / kChunks;
  const int line = static_cast<int>(threadIdx.x) / kChunks;
  const int channel = static_cast<int>(threadIdx.x) % kChunks * 8;
  if (channel >= channels) return;
  const auto* from = static_cast<const BFloat16*>(data);
  TESSERA_UNROLL
  for (int i = 0; i < Count / kLines; ++i) {
    const int row = line + i * kLines;
    const bool valid = first + row < last && channel < head_dim;
    cp_async_16(to + row * (kMostWideHeadDim + 8) + channel,
                valid ? from + (first + row) * stride + at + channel : from, valid);
  }
}

/// Scores of a block of keys: a warp has sixteen queries and half of the keys.
template <int Keys>
__device__ inline void score_wide(const WideShared<Keys>& shared, int channels) {
  constexpr int kPitch = WideTile<Keys>::kPitch, kMine = Keys / 2;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = threadIdx.x / kWarp;
  const int row = warp / 2 * 16, key = warp % 2 * kMine;
  const BFloat16* q = shared.q + (row + lane % 16) * kPitch + lane / 16 * 8;
  const BFloat16* k = shared.k + (key + lane / 16 * 8 + lane % 8) * kPitch + lane / 8 % 2 * 8;
  float sums[kMine / 8][4] = {};
  for (int group = 0; group < channels; group += kWideGroup) {
    TESSERA_UNROLL
    for (int step = 0; step < kWideGroup; step += 16) {
      const int c = group + step;
      uint32_t left[4];
      load_matrices(left, q + c);
      TESSERA_UNROLL
      for (int j = 0; j < kMine / 8; j += 2) {
        uint32_t right[4];
        load_matrices(right, k + j * 8 * kPitch + c);
        multiply_bf16(sums[j], left, right[0], right[1]);
        multiply_bf16(sums[j + 1], left, right[2], right[3]);
      }
    }
  }
  TESSERA_UNROLL
  for (int j = 0; j < kMine / 8; ++j) TESSERA_UNROLL
  for (int half = 0; half < 2; ++half) {
    float* to = shared.scores + (row + half * 8 + lane / 4) * WideTile<Keys>::kScorePitch + key +
                j * 8 + lane % 4 * 2;
    to[0] = sums[j][2 * half], to[1] = sums[j][2 * half + 1];
  }
}

/// Converts scores to probabilities under the running maximum and computes factors for earlier
/// sums; keys from `valid` on are masked. Four threads share a row.
template <int Keys>
__device__ inline void soften_wide(const WideShared<Keys>& shared, float scale, int64_t valid,
                                   WideRow& state) {
  constexpr int kPitch = WideTile<Keys>::kScorePitch, kSteps = Keys / 16;
  const int row = static_cast<int>(threadIdx.x) / 4,
            first_key = static_cast<int>(threadIdx.x) % 4 * 4;
  const int open = valid < Keys ? static_cast<int>(valid) : Keys;
  float scores[kSteps][4], top = -INFINITY;
  TESSERA_UNROLL
  for (int s = 0; s < kSteps; ++s) {
    const int key = s * 16 + first_key;
    const float4 word = *reinterpret_cast<const float4*>(shared.scores + row * kPitch + key);
    scores[s][0] = word.x, scores[s][1] = word.y, scores[s][2] = word.z, scores[s][3] = word.w;
    TESSERA_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (key + i >= open) scores[s][i] = -INFINITY;
      top = fmaxf(top, scores[s][i]);
    }
  }
  top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
  top = fmaxf(state.top, fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2)) * scale);
  const float shrink = exp2_of(state.top - top);
  state.top = top;
  state.sum *= shrink;
  if (first_key == 0) shared.factors[row] = shrink;
  TESSERA_UNROLL
  for (int s = 0; s < kSteps; ++s) {
    TESSERA_UNROLL
    for (int i = 0; i < 4; ++i) {
      scores[s][i] = exp2_of(fmaf(scores[s][i], scale, -top));
      state.sum += scores[s][i];
    }
    *reinterpret_cast<uint2*>(shared.p + row * kPitch + s * 16 + first_key) = {
        pack_bf16(scores[s][0], scores[s][1]), pack_bf16(scores[s][2], scores[s][3])};
  }
}

/// A warp's part of the result: 32 queries, and sixteen channels of each group of 64.
struct WideSums {
  float out[kMostWideHeadDim / kWideGroup][2][2][4];  ///< [group][eight channels][queries]

  __device__ static int rows() { return static_cast<int>(threadIdx.x) / kWarp / 4 * 32; }
  __device__ static int channel() { return static_cast<int>(threadIdx.x) / kWarp % 4 * 16; }

  /// Multiplies each row by its factor.
  __device__ void scale(const float* factors) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    TESSERA_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float factor = factors[rows() + i * 8 + lane / 4];
      TESSERA_UNROLL
      for (int g = 0; g < kMostWideHeadDim / kWideGroup; ++g) TESSERA_UNROLL
      for (int e = 0; e < 2; ++e) {
        out[g][e][i / 2][i % 2 * 2] *= factor;
        out[g][e][i / 2][i % 2 * 2 + 1] *= factor;
      }
    }
  }
};

/// out += P V.
template <int Keys>
__device__ inline void mix_wide(const WideShared<Keys>& shared, int channels, WideSums& sums) {
  using Tile = WideTile<Keys>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const BFloat16* p = shared.p + (WideSums::rows() + lane % 16) * Tile::kScorePitch + lane / 16 * 8;
  const BFloat16* v = shared.v + lane % 16 * Tile::kPitch + WideSums::channel() + lane / 16 * 8;
  TESSERA_UNROLL
  for (int key = 0; key < Keys; key += 16) {
    uint32_t left[2][4];
    load_matrices(left[0], p + key);
    load_matrices(left[1], p + 16 * Tile::kScorePitch + key);
    TESSERA_UNROLL
    for (int g = 0; g < kMostWideHeadDim / kWideGroup; ++g) {
      if (g * kWideGroup >= channels) continue;
      uint32_t right[4];
      load_matrices_transposed(right, v + key * Tile::kPitch + g * kWideGroup);
      TESSERA_UNROLL
      for (int i = 0; i < 2; ++i) {
        multiply_bf16(sums.out[g][0][i], left[i], right[0], right[1]);
        multiply_bf16(sums.out[g][1][i], left[i], right[2], right[3]);
      }
    }
  }
}

/// Ends the softmax of each row: factors become the final multipliers.
__device__ inline void close_rows(const AttentionArgs& a, const AttentionItem& item,
                                  const WideRow& state, float* factors) {
  float sum = state.sum;
  sum += __shfl_xor_sync(kAllLanes, sum, 1);
  sum += __shfl_xor_sync(kAllLanes, sum, 2);
  const int row = static_cast<int>(threadIdx.x) / 4;
  if (threadIdx.x % 4 != 0) return;
  factors[row] = sum > 0 ? 1 / sum : 0;
  const int64_t query = item.first + row;
  if (a.lse && query < item.last)
    a.lse[query * a.heads + item.head] =
        sum > 0 ? (state.top + log2f(sum)) * 0.6931471805599453f : -INFINITY;
}

__device__ inline void write_wide(const AttentionArgs& a, const AttentionItem& item,
                                  const WideSums& sums) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  TESSERA_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int64_t query = item.first + WideSums::rows() + i * 8 + lane / 4;
    if (query >= item.last) continue;
    const int64_t at = query * a.out_stride + int64_t{item.head} * a.head_dim + lane % 4 * 2;
    TESSERA_UNROLL
    for (int g = 0; g < kMostWideHeadDim / kWideGroup; ++g) TESSERA_UNROLL
    for (int e = 0; e < 2; ++e) {
      const int channel = g * kWideGroup + WideSums::channel() + e * 8;
      if (channel >= a.head_dim) continue;
      const float first = sums.out[g][e][i / 2][i % 2 * 2],
                  second = sums.out[g][e][i / 2][i % 2 * 2 + 1];
      if (a.wide) {
        float* const out = static_cast<float*>(a.out) + at + channel;
        out[0] = first, out[1] = second;
      } else {
        auto* const out = static_cast<BFloat16*>(a.out) + at + channel;
        *reinterpret_cast<uint32_t*>(out) = pack_bf16(first, second);
      }
    }
  }
}

template <int Keys>
__global__ void __launch_bounds__(kWideThreads, 1) attention_wide_kernel(AttentionArgs a) {
  const WideShared<Keys> shared(dynamic_shared());
  const int channels = ceil_div(a.head_dim, kWideGroup) * kWideGroup;
  const float scale = a.scale * 1.4426950408889634f;
  AttentionItem item;
  for (int64_t index = blockIdx.x; find_item(a, kWideQueries, index, item); index += gridDim.x) {
    const int64_t kv_at = int64_t{item.head / (a.heads / a.kv_heads)} * a.head_dim;
    const auto fetch = [&](BFloat16* to, const void* data, int64_t stride, int64_t first) {
      if (first < item.k_end)
        fetch_wide<Keys>(to, data, stride, kv_at, first, item.k_end, a.head_dim, channels);
      cp_async_commit();
    };
    if (item.k_begin < item.k_end)  // otherwise nothing waits for the copy
      fetch_wide<kWideQueries>(shared.q, a.q, a.q_stride, int64_t{item.head} * a.head_dim,
                               item.first, item.last, a.head_dim, channels);
    fetch(shared.k, a.k, a.k_stride, item.k_begin);
    WideRow row;
    WideSums sums = {};
    for (int64_t first = item.k_begin; first < item.k_end; first += Keys) {
      cp_async_wait<0>();
      __syncthreads();  // the keys are there; earlier values and probabilities have been read
      fetch(shared.v, a.v, a.v_stride, first);
      score_wide<Keys>(shared, channels);
      __syncthreads();  // the scores are there; the keys have been read
      fetch(shared.k, a.k, a.k_stride, first + Keys);
      soften_wide<Keys>(shared, scale, item.k_end - first, row);
      cp_async_wait<1>();
      __syncthreads();  // the values and probabilities are there
      sums.scale(shared.factors);
      mix_wide<Keys>(shared, channels, sums);
    }
    __syncthreads();  // the factors have been read
    close_rows(a, item, row, shared.factors);
    __syncthreads();
    sums.scale(shared.factors);
    write_wide(a, item, sums);
  }
  cp_async_wait<0>();
}

}  // namespace tessera::kernels::cuda

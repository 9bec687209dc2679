#pragma once

#include "kernels/cuda/attention_plan.h"
#include "kernels/cuda/attention_softmax.cuh"

// Attention on tensor cores with online softmax (FlashAttention-2: a warp keeps sixteen queries,
// the probabilities never leave its registers). Keys come in blocks of fixed size from the first
// on: a query does not depend on others.
namespace tessera::kernels::cuda {

/// Queues the copy of rows [first, first + Count) of a head to rows of Width + 8; zeros from `last`
/// on and beyond head_dim.
template <int Width, int Count>
__device__ inline void fetch_rows(BFloat16* to, const void* data, int64_t stride, int64_t at,
                                  int64_t first, int64_t last, int head_dim) {
  constexpr int kChunks = Width / 8;
  const auto* from = static_cast<const BFloat16*>(data);
  TESSERA_UNROLL
  for (int i = 0; i < Count * kChunks / kAttentionThreads; ++i) {
    const int n = i * kAttentionThreads + static_cast<int>(threadIdx.x);
    const int row = n / kChunks, chunk = n % kChunks;
    const bool valid = first + row < last && chunk * 8 < head_dim;
    cp_async_16(to + row * (Width + 8) + chunk * 8,
                valid ? from + (first + row) * stride + at + chunk * 8 : from, valid);
  }
}

/// scores = Q K^T of a block of keys; keys from `valid` on are masked.
template <int Width, int Keys>
__device__ inline void score_block(float (&scores)[Keys / 8][4], const BFloat16* q,
                                   const BFloat16* k, int64_t valid) {
  constexpr int kPitch = Width + 8;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  TESSERA_UNROLL
  for (int j = 0; j < Keys / 8; ++j) TESSERA_UNROLL
  for (int i = 0; i < 4; ++i) scores[j][i] = 0;
  TESSERA_UNROLL
  for (int c = 0; c < Width; c += 16) {
    uint32_t left[4];
    load_matrices(left, q + lane % 16 * kPitch + c + lane / 16 * 8);
    TESSERA_UNROLL
    for (int j = 0; j < Keys / 8; j += 2) {
      uint32_t right[4];
      load_matrices(right, k + (j * 8 + lane / 16 * 8 + lane % 8) * kPitch + c + lane / 8 % 2 * 8);
      multiply_bf16(scores[j], left, right[0], right[1]);
      multiply_bf16(scores[j + 1], left, right[2], right[3]);
    }
  }
  close_keys<Keys>(scores, valid);
}

/// out += P V: the sums of two products are rounded to bf16 as the left operand of the next.
template <int Width, int Keys>
__device__ inline void mix_block(const float (&p)[Keys / 8][4], const BFloat16* v,
                                 WarpState<Width>& state) {
  constexpr int kPitch = Width + 8;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  TESSERA_UNROLL
  for (int j = 0; j < Keys / 8; j += 2) {
    const uint32_t left[4] = {pack_bf16(p[j][0], p[j][1]), pack_bf16(p[j][2], p[j][3]),
                              pack_bf16(p[j + 1][0], p[j + 1][1]),
                              pack_bf16(p[j + 1][2], p[j + 1][3])};
    TESSERA_UNROLL
    for (int c = 0; c < Width; c += 16) {
      uint32_t right[4];
      load_matrices_transposed(right, v + (j * 8 + lane % 16) * kPitch + c + lane / 16 * 8);
      multiply_bf16(state.out[c / 8], left, right[0], right[1]);
      multiply_bf16(state.out[c / 8 + 1], left, right[2], right[3]);
    }
  }
}

template <int Width, int Keys>
__global__ void __launch_bounds__(kAttentionThreads) attention_kernel(AttentionArgs a) {
  constexpr int kPitch = Width + 8, kBlock = Keys * kPitch;
  auto* q = reinterpret_cast<BFloat16*>(dynamic_shared());
  BFloat16 *k = q + kAttentionQueries * kPitch, *v = k + 2 * kBlock;
  const float scale = a.scale * 1.4426950408889634f;
  AttentionItem item;
  for (int64_t index = blockIdx.x; find_item(a, kAttentionQueries, index, item);
       index += gridDim.x) {
    const int64_t kv_at = int64_t{item.head / (a.heads / a.kv_heads)} * a.head_dim;
    const int blocks = static_cast<int>(ceil_div<int64_t>(item.k_end - item.k_begin, Keys));
    const auto fetch = [&](int block) {
      if (block < blocks) {
        const int64_t first = item.k_begin + int64_t{block} * Keys;
        const int at = block % 2 * kBlock;
        fetch_rows<Width, Keys>(k + at, a.k, a.k_stride, kv_at, first, item.k_end, a.head_dim);
        fetch_rows<Width, Keys>(v + at, a.v, a.v_stride, kv_at, first, item.k_end, a.head_dim);
      }
      cp_async_commit();
    };
    __syncthreads();   // the previous item has been read
    if (blocks > 0) {  // otherwise nothing waits for the copies
      fetch_rows<Width, kAttentionQueries>(q, a.q, a.q_stride, int64_t{item.head} * a.head_dim,
                                           item.first, item.last, a.head_dim);
      fetch(0);
    }
    WarpState<Width> state;
    begin(state);
    float shrink[2];
    const BFloat16* warp_queries = q + threadIdx.x / kWarp * 16 * kPitch;
    for (int block = 0; block < blocks; ++block) {
      fetch(block + 1);
      cp_async_wait<1>();
      __syncthreads();
      const int at = block % 2 * kBlock;
      float scores[Keys / 8][4];
      score_block<Width, Keys>(scores, warp_queries, k + at,
                               item.k_end - item.k_begin - int64_t{block} * Keys);
      soften<Keys>(scores, scale, state.top, state.sum, shrink);
      scale_rows<Width>(state.out, shrink);
      mix_block<Width, Keys>(scores, v + at, state);
      __syncthreads();  // the block has been read; the next may come
    }
    finish<Width>(a, item, state);
  }
  cp_async_wait<0>();
}

}  // namespace tessera::kernels::cuda

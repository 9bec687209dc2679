#pragma once

#include "kernels/cuda/attention_sm90.h"
#include "kernels/cuda/attention_softmax.cuh"
#include "kernels/cuda/sm90.cuh"

// Attention on the tensor cores of Hopper (FlashAttention-3: one warpgroup fetches, others
// compute; the products with a block of values run beside the softmax of the next block of keys).
namespace tessera::kernels::cuda {

struct Sm90Maps {
  RowMap q, k, v;
};

/// Shared memory of a thread block.
template <int Width, int Groups>
struct Sm90Shared {
  using Tile = Sm90Tile<Width, Groups>;
  unsigned char *q, *k, *v;
  uint64_t *q_full, *q_empty, *k_full, *k_empty, *v_full, *v_empty;

  __device__ explicit Sm90Shared(unsigned char* memory) {
    q = tiles_from(memory);
    k = q + Tile::kQueryBytes;
    v = k + kSm90Stages * Tile::kBlockBytes;
    q_full = reinterpret_cast<uint64_t*>(v + kSm90Stages * Tile::kBlockBytes);
    q_empty = q_full + 1;
    k_full = q_empty + 1;
    k_empty = k_full + kSm90Stages;
    v_full = k_empty + kSm90Stages;
    v_empty = v_full + kSm90Stages;
  }
  __device__ void open() const {
    barrier_init(q_full, 1);
    barrier_init(q_empty, Tile::kComputingWarps);
    for (int s = 0; s < kSm90Stages; ++s) {
      barrier_init(k_full + s, 1);
      barrier_init(v_full + s, 1);
      barrier_init(k_empty + s, Tile::kComputingWarps);
      barrier_init(v_empty + s, Tile::kComputingWarps);
    }
    barriers_ready();
  }
};

template <int Width, int Groups>
__device__ inline void fetch_tile(unsigned char* to, const RowMap& map, uint64_t* full, int rows,
                                  int head, int64_t first) {
  constexpr int kChunks = Sm90Tile<Width, Groups>::kChunks;
  barrier_expect(full, rows * 128 * kChunks);
  for (int c = 0; c < kChunks; ++c) load_box(to + c * rows * 128, map, full, c * 64, head, first);
}

// Runs in a single thread: fetches the tiles of all items as their buffers become free.
template <int Width, int Groups>
__device__ inline void fetch_all(const AttentionArgs& a, const Sm90Maps& maps,
                                 const Sm90Shared<Width, Groups>& shared) {
  using Tile = Sm90Tile<Width, Groups>;
  AttentionItem item;
  int used = 0, items = 0;
  for (int64_t index = blockIdx.x; find_item(a, Tile::kQueries, index, item);
       index += gridDim.x, ++items) {
    const int kv_head = item.head / (a.heads / a.kv_heads);
    barrier_wait(shared.q_empty, items % 2 ^ 1);
    fetch_tile<Width, Groups>(shared.q, maps.q, shared.q_full, Tile::kQueries, item.head,
                              item.first);
    for (int64_t first = item.k_begin; first < item.k_end; first += Tile::kKeys, ++used) {
      const int s = used % kSm90Stages, parity = used / kSm90Stages % 2 ^ 1;
      barrier_wait(shared.k_empty + s, parity);
      fetch_tile<Width, Groups>(shared.k + s * Tile::kBlockBytes, maps.k, shared.k_full + s,
                                Tile::kKeys, kv_head, first);
      barrier_wait(shared.v_empty + s, parity);
      fetch_tile<Width, Groups>(shared.v + s * Tile::kBlockBytes, maps.v, shared.v_full + s,
                                Tile::kKeys, kv_head, first);
    }
  }
}

// Starts scores = Q K^T for a warpgroup's 64 queries.
template <int Width, int Groups>
__device__ inline void ask_scores(float (&scores)[Sm90Tile<Width, Groups>::kKeys / 8][4],
                                  const unsigned char* q, const unsigned char* k) {
  using Tile = Sm90Tile<Width, Groups>;
  products_begin();
  TESSERA_UNROLL
  for (int step = 0; step < Tile::kSteps; ++step) {
    const int chunk = step / 4, at = step % 4 * 32;
    multiply_shared<Tile::kKeys>(scores, tile_descriptor(q + chunk * Tile::kQueries * 128 + at, 16),
                                 tile_descriptor(k + chunk * Tile::kKeys * 128 + at, 16), step > 0);
  }
  products_commit();
}

// Starts out += P V.
template <int Width, int Groups>
__device__ inline void ask_mix(float (&out)[Sm90Tile<Width, Groups>::kOut / 8][4],
                               const uint32_t (&p)[Sm90Tile<Width, Groups>::kKeys / 16][4],
                               const unsigned char* v) {
  constexpr int kKeys = Sm90Tile<Width, Groups>::kKeys, kChunk = kKeys * 128;
  constexpr int kOut = Sm90Tile<Width, Groups>::kOut, kFirst = kOut < 128 ? kOut : 128;
  products_begin();
  TESSERA_UNROLL
  for (int step = 0; step < kKeys / 16; ++step) {
    const unsigned char* rows = v + step * 16 * 128;
    multiply_registers<kFirst, 0>(out, p[step], tile_descriptor(rows, kChunk));
    if constexpr (kOut > 128)
      multiply_registers<128, 16>(out, p[step], tile_descriptor(rows + 2 * kChunk, kChunk));
  }
  products_commit();
}

// Clears values after the last key: uninitialised values may be NaN, and 0 times NaN is NaN.
template <int Width, int Groups>
__device__ inline void clear_behind(unsigned char* v, int valid) {
  using Tile = Sm90Tile<Width, Groups>;
  constexpr int kWords = 8, kEnd = Tile::kKeys * kWords;
  for (int i = static_cast<int>(threadIdx.x) + valid * kWords; i < kEnd; i += Tile::kComputing)
    for (int c = 0; c < Tile::kChunks; ++c) store_shared(v + (c * kEnd + i) * 16, {0, 0, 0, 0});
  fence_shared();
  wait_for_threads(1, Tile::kComputing);
}

template <int Keys>
__device__ inline void pack_probabilities(const float (&scores)[Keys / 8][4],
                                          uint32_t (&p)[Keys / 16][4]) {
  TESSERA_UNROLL
  for (int s = 0; s < Keys / 16; ++s) {
    p[s][0] = pack_bf16(scores[2 * s][0], scores[2 * s][1]);
    p[s][1] = pack_bf16(scores[2 * s][2], scores[2 * s][3]);
    p[s][2] = pack_bf16(scores[2 * s + 1][0], scores[2 * s + 1][1]);
    p[s][3] = pack_bf16(scores[2 * s + 1][2], scores[2 * s + 1][3]);
  }
}

// The warpgroups start products in turns (ping-pong scheduling, FlashAttention-3, section 3.1): the
// exponentials of one run beside the products of another.
template <int Width, int Groups>
__device__ inline void compute_all(const AttentionArgs& a,
                                   const Sm90Shared<Width, Groups>& shared) {
  using Tile = Sm90Tile<Width, Groups>;
  constexpr int kKeys = Tile::kKeys;
  const int group = own_group();
  const unsigned char* q = shared.q + group * 64 * 128;
  const float scale = a.scale * 1.4426950408889634f;
  AttentionItem item;
  int used = 0, items = 0;
  if (group + 1 == Groups) pass_turn<Groups>(group);
  for (int64_t index = blockIdx.x; find_item(a, Tile::kQueries, index, item);
       index += gridDim.x, ++items) {
    const int64_t keys = item.k_end - item.k_begin;
    const int blocks = static_cast<int>(ceil_div<int64_t>(keys, kKeys));
    WarpState<Tile::kOut> state;
    begin(state);
    float scores[kKeys / 8][4], shrink[2];
    uint32_t p[kKeys / 16][4];
    barrier_wait(shared.q_full, items % 2);
    // Waits for the scores of a block and converts them to probabilities.
    const auto soften_block = [&](int block) {
      leave(shared.k_empty + (used + block) % kSm90Stages);
      if (block + 1 == blocks) leave(shared.q_empty);
      close_keys<kKeys>(scores, keys - int64_t{block} * kKeys);
      soften<kKeys, Tile::kPolynomials>(scores, scale, state.top, state.sum, shrink);
    };
    const auto ask = [&](int block) {
      const int n = used + block, s = n % kSm90Stages;
      barrier_wait(shared.k_full + s, n / kSm90Stages % 2);
      ask_scores<Width, Groups>(scores, q, shared.k + s * Tile::kBlockBytes);
    };
    const auto values = [&](int block) {
      const int n = used + block;
      barrier_wait(shared.v_full + n % kSm90Stages, n / kSm90Stages % 2);
      return shared.v + n % kSm90Stages * Tile::kBlockBytes;
    };
    if (blocks == 0) leave(shared.q_empty);
    if (blocks > 0) {
      ask(0);
      products_wait<0>(scores);
      soften_block(0);
      for (int block = 0; block + 1 < blocks; ++block) {
        pack_probabilities<kKeys>(scores, p);
        take_turn(group);
        ask(block + 1);
        ask_mix<Width, Groups>(state.out, p, values(block));
        pass_turn<Groups>(group);
        products_wait<1>(scores);
        soften_block(block + 1);
        products_wait_behind(state.out, state.sum[0] + state.sum[1]);
        leave(shared.v_empty + (used + block) % kSm90Stages);
        scale_rows<Tile::kOut>(state.out, shrink);
      }
      pack_probabilities<kKeys>(scores, p);
      unsigned char* v = values(blocks - 1);
      if (keys % kKeys != 0) clear_behind<Width, Groups>(v, static_cast<int>(keys % kKeys));
      ask_mix<Width, Groups>(state.out, p, v);
      products_wait<0>(state.out);
      leave(shared.v_empty + (used + blocks - 1) % kSm90Stages);
    }
    used += blocks;
    finish<Tile::kOut>(a, item, state);
  }
  if (group == 0) take_turn(group);  // the remaining turn
}

}  // namespace tessera::kernels::cuda

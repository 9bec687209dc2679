#pragma once

#include "kernels/cuda/product.cuh"
#include "kernels/cuda/sm90.cuh"

// Tiles of product.cuh by warpgroups, for bf16, with the same sources, weights and sinks. All
// threads fetch, because rows may lie anywhere, two stages ahead.
namespace tessera::kernels::cuda {

constexpr int kGroupRows = 128, kGroupDepth = 64, kGroupStages = 4;

/// Bytes of shared memory for tiles of `N` rows of W.
constexpr int64_t group_shared(int n) {
  return 1024 + int64_t{kGroupStages} * (kGroupRows + n) * 128;
}

/// Multiplies kGroupRows rows of the source from `first_row` on by N rows of W, with kComputing
/// threads.
template <int N, class Source, class Weights, class Sink>
__device__ inline void product_tile_sm90(const Source& source, int64_t first_row, const Weights& w,
                                         const Sink& sink) {
  constexpr int kChunks = kGroupDepth / 8, kLines = kComputing / kChunks;
  constexpr int kMine = kGroupRows / kLines, kTheirs = N / kLines;
  constexpr int kLeft = kGroupRows * 128, kStage = kLeft + N * 128;
  unsigned char* shared = tiles_from(dynamic_shared());
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  const int chunk = thread % kChunks, line = thread / kChunks;

  typename Source::Row rows[kMine];
  TESSERA_UNROLL
  for (int i = 0; i < kMine; ++i) rows[i] = source.row(first_row + line + i * kLines);
  decltype(w.data) columns[kTheirs];
  TESSERA_UNROLL
  for (int i = 0; i < kTheirs; ++i) columns[i] = w.row(line + i * kLines);

  const int steps = static_cast<int>(ceil_div<int64_t>(w.k, kGroupDepth));
  const int total = steps * source.repeats;
  // Lines are kLines apart, a multiple of eight, so a thread's words have the same swizzle.
  const int at = line * 128 + (chunk ^ line % 8) * 16;
  const auto fetch = [&](int step) {
    if (step < total) {
      unsigned char* stage = shared + step % kGroupStages * kStage + at;
      const int64_t k = int64_t{step % steps} * kGroupDepth + chunk * 8;
      const auto left = [&](int i, const typename Source::Row& row) {
        stage_left(reinterpret_cast<BFloat16*>(stage + i * kLines * 128), source, row, step / steps,
                   k, w.k);
      };
      const auto right = [&](int i, decltype(w.data) column) {
        stage_right(reinterpret_cast<BFloat16*>(stage + kLeft + i * kLines * 128), w, column, k);
      };
      if (source.words && w.words) {
        TESSERA_UNROLL
        for (int i = 0; i < kMine; ++i) left(i, rows[i]);
        TESSERA_UNROLL
        for (int i = 0; i < kTheirs; ++i) right(i, columns[i]);
      } else {  // element by element, outside the row loop to limit code size
        TESSERA_KEEP_ROLLED
        for (int i = 0; i < kMine; ++i) left(i, source.row(first_row + line + i * kLines));
        TESSERA_KEEP_ROLLED
        for (int i = 0; i < kTheirs; ++i) right(i, w.row(line + i * kLines));
      }
    }
    cp_async_commit();
  };

  float sums[N / 8][4];
  TESSERA_KEEP_ROLLED
  for (int step = 0; step < kGroupStages - 2; ++step) fetch(step);
  for (int step = 0; step < total; ++step) {
    cp_async_wait<kGroupStages - 3>();
    fence_shared();
    products_leave<1>();
    __syncthreads();  // this stage has arrived, and the stage before the last is free
    fetch(step + kGroupStages - 2);
    const unsigned char* left = shared + step % kGroupStages * kStage;
    products_begin();
    TESSERA_UNROLL
    for (int k = 0; k < kGroupDepth / 16; ++k)
      multiply_shared<N>(sums, tile_descriptor(left + thread / kGroup * 64 * 128 + k * 32, 16),
                         tile_descriptor(left + kLeft + k * 32, 16), step + k > 0);
    products_commit();
  }
  products_wait<0>(sums);
  TESSERA_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int64_t m = first_row + warp * 16 + half * 8 + lane / 4;
    TESSERA_UNROLL
    for (int j = 0; j < N / 8; j += Sink::kPaired ? 2 : 1) {
      const int64_t column = w.column(j * 8) + lane % 4 * 2;
      if constexpr (Sink::kPaired)
        sink.pair(m, column, {sums[j][2 * half], sums[j][2 * half + 1]},
                  {sums[j + 1][2 * half], sums[j + 1][2 * half + 1]});
      else
        sink.pair(m, column, {sums[j][2 * half], sums[j][2 * half + 1]});
    }
  }
}

}  // namespace tessera::kernels::cuda

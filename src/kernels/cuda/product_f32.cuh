#pragma once

#include "kernels/cuda/device.cuh"

// Same product for f32 with fused multiply-adds: see product.cuh for Source and Sink; a Source here
// gives single floats. The order over k is fixed.
namespace tessera::kernels::cuda {

constexpr int kPlainThreads = 256, kPlainRows = 64, kPlainColumns = 64, kPlainStep = 16;

/// Rows of W, f32 [n, k]; paired: gate and up of a column side by side.
template <bool Paired>
struct PlainWeights {
  const float* data;
  int64_t n, k;
  int64_t first;

  static constexpr int64_t kColumns = Paired ? kPlainColumns / 2 : kPlainColumns;
  __device__ int64_t column(int row) const { return first + (Paired ? row / 2 : row); }
  __device__ const float* row(int row) const {
    const int64_t c = column(row);
    return c < n ? data + ((Paired && row % 2 ? n : 0) + c) * k : nullptr;
  }
};

/// Computes a tile of kPlainRows by kPlainColumns; a thread holds 4 by 4 sums.
template <class Source, class Weights, class Sink>
__device__ inline void product_tile_f32(const Source& source, int64_t first_row, const Weights& w,
                                        const Sink& sink) {
  constexpr int kPitch = kPlainRows + 4;
  __shared__ float a[kPlainStep][kPitch], b[kPlainStep][kPitch];
  const int thread = static_cast<int>(threadIdx.x), x = thread % 16, y = thread / 16;
  constexpr int kMine = kPlainRows * kPlainStep / kPlainThreads;
  typename Source::Row rows[kMine];
  const float* columns[kMine];
  TESSERA_UNROLL
  for (int i = 0; i < kMine; ++i) {
    rows[i] = source.row(first_row + y + i * 16);
    columns[i] = w.row(y + i * 16);
  }
  float sums[4][4] = {};
  for (int64_t k0 = 0; k0 < w.k; k0 += kPlainStep) {
    const int64_t k = k0 + x;
    __syncthreads();
    TESSERA_UNROLL
    for (int i = 0; i < kMine; ++i) {
      const auto* from = k < w.k ? source.at(rows[i], 0, k) : nullptr;
      a[x][y + i * 16] = from ? *from : 0;
      b[x][y + i * 16] = columns[i] && k < w.k ? columns[i][k] : 0;
    }
    __syncthreads();
    TESSERA_UNROLL
    for (int step = 0; step < kPlainStep; ++step) {
      float left[4], right[4];
      TESSERA_UNROLL
      for (int i = 0; i < 4; ++i) {
        left[i] = a[step][y * 4 + i];
        right[i] = b[step][x * 4 + i];
      }
      TESSERA_UNROLL
      for (int i = 0; i < 4; ++i) TESSERA_UNROLL
      for (int j = 0; j < 4; ++j) sums[i][j] = fmaf(left[i], right[j], sums[i][j]);
    }
  }
  TESSERA_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int64_t m = first_row + y * 4 + i, column = w.column(x * 4);
    if constexpr (Sink::kPaired) {
      sink.pair(m, column, {sums[i][0], sums[i][2]}, {sums[i][1], sums[i][3]});
    } else {
      sink.pair(m, column, {sums[i][0], sums[i][1]});
      sink.pair(m, column + 2, {sums[i][2], sums[i][3]});
    }
  }
}

}  // namespace tessera::kernels::cuda

#pragma once

#include "kernels/cuda/matmul_finish.cuh"
#include "kernels/cuda/matmul_sm90.h"
#include "kernels/cuda/sm90.cuh"

// Products on the tensor cores of Hopper whose epilogue stays in registers: tiles of 128 rows of x
// and up to 256 rows of w, fetched four stages ahead.
namespace tessera::kernels::cuda {

struct ProductMaps {
  RowMap x, w;  ///< boxes of kProductRows, and of half a tile's rows of w
};

/// The sizes of a product in tiles.
struct ProductGrid {
  int64_t rows, columns;  ///< tiles
  int64_t second;         ///< from a tile's first rows of w to its second half
  int depth;              ///< blocks of kProductDepth
};

template <int N>
struct ProductShared {
  using Tile = ProductTile<N>;
  unsigned char *left, *right;
  uint64_t *full, *empty;

  __device__ explicit ProductShared(unsigned char* memory) {
    left = tiles_from(memory);
    right = left + Tile::kStages * Tile::kLeftBytes;
    full = reinterpret_cast<uint64_t*>(right + Tile::kStages * Tile::kRightBytes);
    empty = full + Tile::kStages;
  }
  __device__ void open() const {
    for (int s = 0; s < Tile::kStages; ++s) {
      barrier_init(full + s, 1);
      barrier_init(empty + s, kComputingWarps);
    }
    barriers_ready();
  }
};

/// Where a tile lies: neighbours in time share rows of w.
struct ProductPlace {
  int64_t row, column;  ///< of x; of the first half of the rows of w
  __device__ ProductPlace(const ProductGrid& grid, int64_t index, int64_t width)
      : row(index % grid.rows * kProductRows), column(index / grid.rows * width) {}
};

template <int N, bool Paired>
__device__ inline void fetch_products(const ProductMaps& maps, const ProductGrid& grid,
                                      const ProductShared<N>& shared) {
  using Tile = ProductTile<N>;
  int used = 0;
  for (int64_t index = blockIdx.x; index < grid.rows * grid.columns; index += gridDim.x) {
    const ProductPlace at(grid, index, Paired ? N / 2 : N);
    for (int block = 0; block < grid.depth; ++block, ++used) {
      const int s = used % Tile::kStages, channel = block * kProductDepth;
      uint64_t* full = shared.full + s;
      unsigned char* right = shared.right + s * Tile::kRightBytes;
      barrier_wait(shared.empty + s, used / Tile::kStages % 2 ^ 1);
      barrier_expect(full, Tile::kLeftBytes + Tile::kRightBytes);
      load_box(shared.left + s * Tile::kLeftBytes, maps.x, full, channel, 0, at.row);
      load_box(right, maps.w, full, channel, 0, at.column);
      load_box(right + Tile::kRightBytes / 2, maps.w, full, channel, 0, at.column + grid.second);
    }
  }
}

/// Four neighbouring lanes hold two columns each of four eights (x[eight]); afterwards lane t has
/// the eight columns of eight t.
__device__ inline void turn_quad(const float (&x)[4][2], float (&v)[8]) {
  const int t = static_cast<int>(threadIdx.x) % 4;
  const bool odd = t & 1, high = t & 2;
  float pairs[4][2];  // after one exchange: of eights t & 1, (t & 1) + 2 the columns of two lanes
  TESSERA_UNROLL
  for (int i = 0; i < 2; ++i) TESSERA_UNROLL
  for (int e = 0; e < 4; e += 2) {
    const float give = odd ? x[e][i] : x[e + 1][i];
    const float got = __shfl_xor_sync(kAllLanes, give, 1);
    pairs[e][i] = odd ? got : x[e][i];          // from the even lane
    pairs[e + 1][i] = odd ? x[e + 1][i] : got;  // from the odd lane
  }
  TESSERA_UNROLL
  for (int i = 0; i < 2; ++i) TESSERA_UNROLL
  for (int from = 0; from < 2; ++from) {
    const float give = high ? pairs[from][i] : pairs[2 + from][i];
    const float got = __shfl_xor_sync(kAllLanes, give, 2);
    const float mine = high ? pairs[2 + from][i] : pairs[from][i];
    v[2 * from + i] = high ? got : mine;
    v[4 + 2 * from + i] = high ? mine : got;
  }
}

// Columns [32 part, 32 part + 32) of the sums of rows lane / 4 and 8 later.
template <int N, Activation Kind>
__device__ inline void finish_part(const Finish& f, const ProductPlace& at, float (&sums)[N / 8][4],
                                   int part) {
  constexpr bool Paired = Kind == Activation::swiglu;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  TESSERA_UNROLL
  for (int half = 0; half < 2; ++half) {
    float own[4][2], up[4][2], v[8], other[8] = {};
    TESSERA_UNROLL
    for (int e = 0; e < 4; ++e) TESSERA_UNROLL
    for (int i = 0; i < 2; ++i) {
      own[e][i] = sums[4 * part + e][2 * half + i];
      if (Paired) up[e][i] = sums[N / 16 + 4 * part + e][2 * half + i];
    }
    turn_quad(own, v);
    if (Paired) turn_quad(up, other);
    const int64_t row = at.row + threadIdx.x / kWarp * 16 + half * 8 + lane / 4;
    const int64_t column = at.column + part * 32 + lane % 4 * 8;
    if (row < f.rows && column < f.n) finish_chunk<Kind, false, 8>(f, row, column, v, other);
  }
}

template <int N, Activation Kind>
__device__ inline void compute_products(const Finish& f, const ProductGrid& grid,
                                        const ProductShared<N>& shared) {
  using Tile = ProductTile<N>;
  constexpr bool Paired = Kind == Activation::swiglu;
  const int mine = static_cast<int>(threadIdx.x) / kGroup * 64 * 128;
  int used = 0;
  for (int64_t index = blockIdx.x; index < grid.rows * grid.columns; index += gridDim.x) {
    const ProductPlace at(grid, index, Paired ? N / 2 : N);
    float sums[N / 8][4];
    for (int block = 0; block < grid.depth; ++block, ++used) {
      const int s = used % Tile::kStages;
      barrier_wait(shared.full + s, used / Tile::kStages % 2);
      products_begin();
      TESSERA_UNROLL
      for (int step = 0; step < kProductDepth / 16; ++step)
        multiply_shared<N>(
            sums, tile_descriptor(shared.left + s * Tile::kLeftBytes + mine + step * 32, 16),
            tile_descriptor(shared.right + s * Tile::kRightBytes + step * 32, 16),
            block + step > 0);
      products_commit();
      products_leave<1>();
      if (block > 0) leave(shared.empty + (used - 1) % Tile::kStages);
    }
    products_wait<0>(sums);
    leave(shared.empty + (used - 1) % Tile::kStages);
    TESSERA_UNROLL
    for (int part = 0; part < (Paired ? N / 64 : N / 32); ++part)
      finish_part<N, Kind>(f, at, sums, part);
  }
}

}  // namespace tessera::kernels::cuda

#pragma once

#include <type_traits>

#include "kernels/cuda/device.cuh"

// Tiles of a product x W^T on tensor cores. A Source gives the rows of x, a Weights gives the rows
// of W, a Sink takes the sums; experts and convolutions share this loop. The order over k is fixed:
// a row of the result does not depend on the others.
namespace tessera::kernels::cuda {

constexpr int kProductThreads = 256, kProductWarps = kProductThreads / kWarp;
constexpr int kProductColumns = 128;  // rows of W in a tile
constexpr int kProductStep = 32;      // elements of k in a stage
constexpr int kProductStages = 4;
// Rows of a tile are 80 bytes apart, so that eight of them lie in different banks.
constexpr int kProductPitch = kProductStep + 8;

/// Bytes of shared memory for tiles of `rows` rows of x.
constexpr int64_t product_shared(int rows) {
  return int64_t{kProductStages} * (rows + kProductColumns) * kProductPitch * 2;
}

/// The type of a weight on tensor cores: integers are widened to bf16, exactly.
template <class Weight>
using OperandOf = std::conditional_t<std::is_same_v<Weight, Float16>, Float16, BFloat16>;

/// Rows of W in the tile of columns from `first` on, row major [n, k]; paired: eight rows of gate,
/// the matching eight of up, and so on, so that a thread holds both sums of a column. `Wide`: rows
/// of W in a tile.
template <class Weight, bool Paired, int Wide = kProductColumns>
struct TileWeights {
  const Weight* data;
  int64_t n, k;  ///< columns of the result (paired: of gate or up), and their length
  int64_t first;
  bool words;  ///< eight elements can be read at once

  using Operand = OperandOf<Weight>;
  static constexpr int64_t kColumns = Paired ? Wide / 2 : Wide;
  __device__ int64_t column(int row) const {
    return first + (Paired ? row / 16 * 8 + row % 8 : row);
  }
  __device__ const Weight* row(int row) const {
    const int64_t c = column(row);
    return c < n ? data + ((Paired && row / 8 % 2 ? n : 0) + c) * k : nullptr;
  }
};

/// Stores eight elements in shared memory: element(i) for i < valid, zeros after.
template <class Element>
__device__ inline void stage_elements(void* to, int64_t valid, Element element) {
  uint32_t packed[4];
  TESSERA_UNROLL
  for (int i = 0; i < 4; ++i) {
    const uint16_t low = 2 * i < valid ? element(2 * i) : uint16_t{0};
    const uint16_t high = 2 * i + 1 < valid ? element(2 * i + 1) : uint16_t{0};
    packed[i] = low | uint32_t{high} << 16;
  }
  store_shared(to, {packed[0], packed[1], packed[2], packed[3]});
}

/// Elements k .. k + 8 of a row of the source.
template <class T, class Source>
__device__ inline void stage_left(T* to, const Source& source, const typename Source::Row& row,
                                  int repeat, int64_t k, int64_t end) {
  if (source.words) {
    const T* from = k < end ? source.at(row, repeat, k) : nullptr;
    cp_async_16(to, from ? from : source.x, from != nullptr);
    return;
  }
  stage_elements(to, end - k, [&](int i) {
    const T* from = source.at(row, repeat, k + i);
    return from ? from->bits : uint16_t{0};
  });
}

/// Elements k .. k + 8 of a row of W (null: zeros).
template <class Weights, class T>
__device__ inline void stage_right(void* to, const Weights& w, const T* row, int64_t k) {
  const int64_t valid = row ? w.k - k : 0;
  if constexpr (!std::is_same_v<T, int8_t>) {
    if (w.words) {
      cp_async_16(to, valid > 0 ? row + k : w.data, valid > 0);
      return;
    }
    stage_elements(to, valid, [&](int i) { return row[k + i].bits; });
  } else {
    uint2 word{0, 0};
    if (w.words && valid > 0) word = *reinterpret_cast<const uint2*>(row + k);
    stage_elements(to, valid, [&](int i) {  // exact: bf16 holds eight bits
      const int8_t byte =
          w.words ? static_cast<int8_t>((i < 4 ? word.x : word.y) >> (8 * (i % 4))) : row[k + i];
      return float_to_bf16_bits(static_cast<float>(byte));
    });
  }
}

/// d += a b as multiply_bf16(), for operands of type T.
template <class T>
__device__ inline void multiply_16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                   uint32_t b1) {
  if constexpr (std::is_same_v<T, Float16>)
    multiply_f16(d, a, b0, b1);
  else
    multiply_bf16(d, a, b0, b1);
}

/// Multiplies `Rows` rows of the source from `first_row` on by kProductColumns rows of W. Source:
/// x; Row row(m); const T* at(Row, repeat, k), null for zeros, T the operand of W; `repeats` times
/// k is the length; words: eight elements of a row are 16 aligned bytes. Sink: pair(m, column,
/// sums) gets two neighbouring columns; with paired weights pair(m, column, gates, ups).
template <int Rows, class Source, class Weights, class Sink>
__device__ inline void product_tile(const Source& source, int64_t first_row, const Weights& w,
                                    const Sink& sink) {
  constexpr int kWarpsM = Rows / 32, kWarpsN = kProductWarps / kWarpsM;
  constexpr int kTiles = kProductColumns / kWarpsN / 8;  // tiles of eight columns for each warp
  constexpr int kChunks = kProductStep / 8;
  constexpr int kMine = Rows * kChunks / kProductThreads;               // chunks of x in a thread
  constexpr int kTheirs = kProductColumns * kChunks / kProductThreads;  // chunks of W in a thread
  constexpr int kStage = (Rows + kProductColumns) * kProductPitch;
  using Operand = typename Weights::Operand;
  auto* shared = reinterpret_cast<Operand*>(dynamic_shared());
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  const int chunk = thread % kChunks, line = thread / kChunks;
  constexpr int kLines = kProductThreads / kChunks;

  typename Source::Row rows[kMine];
  TESSERA_UNROLL
  for (int i = 0; i < kMine; ++i) rows[i] = source.row(first_row + line + i * kLines);
  decltype(w.data) columns[kTheirs];
  TESSERA_UNROLL
  for (int i = 0; i < kTheirs; ++i) columns[i] = w.row(line + i * kLines);

  const int steps = static_cast<int>(ceil_div<int64_t>(w.k, kProductStep));
  const int total = steps * source.repeats;
  const auto fetch = [&](int step) {
    if (step < total) {
      Operand* stage = shared + step % kProductStages * kStage;
      const int64_t k = int64_t{step % steps} * kProductStep + chunk * 8;
      TESSERA_UNROLL
      for (int i = 0; i < kMine; ++i)
        stage_left(stage + (line + i * kLines) * kProductPitch + chunk * 8, source, rows[i],
                   step / steps, k, w.k);
      stage += Rows * kProductPitch;
      TESSERA_UNROLL
      for (int i = 0; i < kTheirs; ++i)
        stage_right(stage + (line + i * kLines) * kProductPitch + chunk * 8, w, columns[i], k);
    }
    cp_async_commit();
  };

  float sums[2][kTiles][4] = {};
  const int warp_m = warp / kWarpsN * 32, warp_n = warp % kWarpsN * kTiles * 8;
  for (int step = 0; step < kProductStages - 1; ++step) fetch(step);
  for (int step = 0; step < total; ++step) {
    cp_async_wait<kProductStages - 2>();
    __syncthreads();  // this stage has arrived, and the previous stage is free
    fetch(step + kProductStages - 1);
    const Operand* a = shared + step % kProductStages * kStage;
    const Operand* b = a + Rows * kProductPitch;
    TESSERA_UNROLL
    for (int k = 0; k < kProductStep; k += 16) {
      uint32_t left[2][4];
      TESSERA_UNROLL
      for (int i = 0; i < 2; ++i)
        load_matrices(left[i],
                      a + (warp_m + i * 16 + lane % 16) * kProductPitch + k + lane / 16 * 8);
      TESSERA_UNROLL
      for (int j = 0; j < kTiles; j += 2) {
        uint32_t right[4];
        load_matrices(right, b + (warp_n + j * 8 + lane / 16 * 8 + lane % 8) * kProductPitch + k +
                                 lane / 8 % 2 * 8);
        TESSERA_UNROLL
        for (int i = 0; i < 2; ++i) {
          multiply_16<Operand>(sums[i][j], left[i], right[0], right[1]);
          multiply_16<Operand>(sums[i][j + 1], left[i], right[2], right[3]);
        }
      }
    }
  }
  TESSERA_UNROLL
  for (int i = 0; i < 2; ++i) TESSERA_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int64_t m = first_row + warp_m + i * 16 + half * 8 + lane / 4;
    TESSERA_UNROLL
    for (int j = 0; j < kTiles; j += Sink::kPaired ? 2 : 1) {
      const int64_t column = w.column(warp_n + j * 8) + lane % 4 * 2;
      if constexpr (Sink::kPaired)
        sink.pair(m, column, {sums[i][j][2 * half], sums[i][j][2 * half + 1]},
                  {sums[i][j + 1][2 * half], sums[i][j + 1][2 * half + 1]});
      else
        sink.pair(m, column, {sums[i][j][2 * half], sums[i][j][2 * half + 1]});
    }
  }
}

}  // namespace tessera::kernels::cuda

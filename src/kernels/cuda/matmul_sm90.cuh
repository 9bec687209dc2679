#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/matmul_finish.cuh"
#include "kernels/cuda/matmul_sm90.h"
#include "kernels/cuda/sm90.cuh"

// Products on the tensor cores of Hopper with an epilogue in registers: tiles of 128 rows of x and
// up to 256 rows of w, fetched four stages ahead.
namespace tessera::kernels::cuda {

struct ProductMaps {
  RowMap x, w;  ///< boxes of kProductRows, and of half a tile's rows of w
};

/// Destinations of a stage's boxes and their barriers; for bf16 both barriers are the same.
struct ProductStage {
  unsigned char *left, *right;
  uint64_t *full, *right_full;
};

/// `Bytes`: rows of w arrive in `bytes` and are widened to `right`; `full` counts both.
template <int N, bool Bytes>
struct ProductShared {
  using Tile = ProductTile<N, Bytes>;
  unsigned char *left, *right, *bytes;
  uint64_t *full, *empty, *bytes_full;

  __device__ explicit ProductShared(unsigned char* memory) {
    left = tiles_from(memory);
    right = left + Tile::kStages * Tile::kLeftBytes;
    bytes = right + Tile::kStages * Tile::kRightBytes;
    full = reinterpret_cast<uint64_t*>(bytes + Tile::kStages * Tile::kByteBytes);
    empty = full + Tile::kStages;
    bytes_full = empty + Tile::kStages;
  }
  /// `readers`: warps reading a stage.
  __device__ void open(int readers) const {
    for (int s = 0; s < Tile::kStages; ++s) {
      barrier_init(full + s, Bytes ? 1 + kBeside / kWarp : 1);
      barrier_init(empty + s, readers);
      if (Bytes) barrier_init(bytes_full + s, 1);
    }
    barriers_ready();
  }
  __device__ ProductStage stage(int s) const {
    unsigned char* const to_left = left + s * Tile::kLeftBytes;
    if (Bytes) return {to_left, bytes + s * Tile::kByteBytes, full + s, bytes_full + s};
    return {to_left, right + s * Tile::kRightBytes, full + s, full + s};
  }
  __device__ void expect(const ProductStage& stage) const {
    if (Bytes) barrier_expect(stage.right_full, Tile::kByteBytes);
    barrier_expect(stage.full, Tile::kLeftBytes + (Bytes ? 0 : Tile::kRightBytes));
  }
};

/// N rows of w, from `first` and from `second` on.
template <int N, bool Bytes = false>
__device__ inline void fetch_weights(const ProductStage& to, const RowMap& w, int channel,
                                     int64_t first, int64_t second) {
  using Tile = ProductTile<N, Bytes>;
  constexpr int kHalf = (Bytes ? Tile::kByteBytes : Tile::kRightBytes) / 2;
  load_box(to.right, w, to.right_full, channel, 0, first);
  load_box(to.right + kHalf, w, to.right_full, channel, 0, second);
}

/// Widens sixteen integers to bf16, exactly.
__device__ inline void widen_bytes(uint4 from, uint4 (&to)[2]) {
  const uint32_t words[4] = {from.x, from.y, from.z, from.w};
  uint32_t pairs[8];
  TESSERA_UNROLL
  for (int i = 0; i < 8; ++i) {
    float v[2];
    TESSERA_UNROLL
    for (int j = 0; j < 2; ++j) {  // 2^23 + 128 + number, in the lowest bits of an f32
      const uint32_t byte = (words[i / 2] ^ 0x80808080u) >> (i % 2 * 16 + j * 8) & 0xff;
      v[j] = __uint_as_float(0x4b000000u | byte) - 8388736.0f;
    }
    pairs[i] = pack_bf16(v[0], v[1]);
  }
  to[0] = {pairs[0], pairs[1], pairs[2], pairs[3]};
  to[1] = {pairs[4], pairs[5], pairs[6], pairs[7]};
}

/// Widens w stage by stage for the computing warpgroups.
template <int N, class Work>
__device__ inline void widen_tiles(const Work& work, const ProductShared<N, true>& shared,
                                   int thread) {
  using Tile = ProductTile<N, true>;
  int used = 0;
  work.each([&](const auto&) {
    for (int block = 0; block < work.steps(); ++block, ++used) {
      const int s = used % Tile::kStages;
      const unsigned char* const from = shared.bytes + s * Tile::kByteBytes;
      unsigned char* const to = shared.right + s * Tile::kRightBytes;
      barrier_wait(shared.bytes_full + s, used / Tile::kStages % 2);
      TESSERA_UNROLL_SOME
      for (int i = thread; i < Tile::kByteBytes / 16; i += kBeside) {
        const int row = i / 4, word = i % 4 * 2;
        uint4 wide[2];
        widen_bytes(reinterpret_cast<const uint4*>(from)[i], wide);
        TESSERA_UNROLL
        for (int j = 0; j < 2; ++j)
          store_shared(to + row * 128 + ((word + j) ^ row % 8) * 16, wide[j]);
      }
      fence_shared();
      leave(shared.full + s);
    }
  });
}

/// Four neighbouring lanes hold two columns each of four groups of eight (x[group]); afterwards
/// lane t has all eight columns of group t.
__device__ inline void turn_quad(const float (&x)[4][2], float (&v)[8]) {
  const int t = static_cast<int>(threadIdx.x) % 4;
  const bool odd = t & 1, high = t & 2;
  float pairs[4][2];  // after one exchange: columns of two lanes for groups t & 1 and (t & 1) + 2
  TESSERA_UNROLL
  for (int i = 0; i < 2; ++i) TESSERA_UNROLL
  for (int e = 0; e < 4; e += 2) {
    const float give = odd ? x[e][i] : x[e + 1][i];
    const float other = __shfl_xor_sync(kAllLanes, give, 1);
    pairs[e][i] = odd ? other : x[e][i];          // from the even lane
    pairs[e + 1][i] = odd ? x[e + 1][i] : other;  // from the odd lane
  }
  TESSERA_UNROLL
  for (int i = 0; i < 2; ++i) TESSERA_UNROLL
  for (int from = 0; from < 2; ++from) {
    const float give = high ? pairs[from][i] : pairs[2 + from][i];
    const float other = __shfl_xor_sync(kAllLanes, give, 2);
    const float own = high ? pairs[2 + from][i] : pairs[from][i];
    v[2 * from + i] = high ? other : own;
    v[4 + 2 * from + i] = high ? own : other;
  }
}

/// Scales of y's columns; paired: of gate and up.
struct ColumnScales {
  const float *own, *up;
};

/// Epilogue of a tile in a thread: eight columns of two rows, eight apart, of each 32. The residual
/// is prefetched `Ahead` parts, starting before the products, so that no read follows a store.
/// Without `Words`, y and the residual are not accessed 16 bytes at a time. `Bytes`: integer sums
/// with column scales.
template <int N, Activation Kind, bool Words, int Ahead, bool Bytes>
struct TileFinish {
  static constexpr bool kPaired = is_paired(Kind);
  static constexpr int kParts = kPaired ? N / 64 : N / 32;
  static constexpr int kAhead = kParts < Ahead ? kParts : Ahead;

  const Finish& f;
  int64_t row[2], column;
  const float* gate[2] = {};  // gate of the row
  ColumnScales scales{};
  bool early;
  uint4 residual[kAhead][2];

  /// `row_of(i)`: row of y for row i of the tile; invalid from f.rows on. The thread's rows are
  /// among the 16 from `first_row` of the tile on.
  template <class RowOf>
  __device__ TileFinish(const Finish& finish, int first_row, int64_t first_column,
                        const RowOf& row_of)
      : f(finish) {
    const Epilogue& e = f.epilogue;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    column = first_column + lane % 4 * 8;
    early = Words && e.residual && e.residual_dtype == DType::bf16;
    TESSERA_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int64_t t = row[half] = row_of(first_row + half * 8 + lane / 4);
      if (e.gate && t < f.rows) gate[half] = e.gate + (e.row_of ? e.row_of[t] : 0) * e.gate_stride;
    }
    TESSERA_UNROLL
    for (int part = 0; part < kAhead; ++part) read_residual(part);
  }
  __device__ void read_residual(int part) {
    if (!early) return;
    TESSERA_UNROLL
    for (int half = 0; half < 2; ++half)
      if (stores(half, part))
        residual[part % kAhead][half] = *reinterpret_cast<const uint4*>(
            static_cast<const BFloat16*>(f.epilogue.residual) +
            row[half] * f.epilogue.residual_stride + column + part * 32);
  }
  __device__ bool stores(int half, int part) const {
    return row[half] < f.rows && column + part * 32 < f.n;
  }
  // Columns [32 part, 32 part + 32).
  __device__ void finish(float (&sums)[N / 8][4], int part) {
    float bias[8] = {}, factor[2][8], scale[8], up_scale[8];
    const int64_t c = column + part * 32;
    if (f.epilogue.bias && c < f.n) read_bias(c, bias);
    TESSERA_UNROLL
    for (int half = 0; half < 2; ++half)
      if (gate[half] && c < f.n) load<8>(gate[half], DType::f32, c, factor[half]);
    if constexpr (Bytes) {
      if (c < f.n) load<8>(scales.own, DType::f32, c, scale);
      if (kPaired && c < f.n) load<8>(scales.up, DType::f32, c, up_scale);
    }
    TESSERA_UNROLL
    for (int half = 0; half < 2; ++half) {
      float own[4][2], up[4][2], v[8], other[8] = {};
      TESSERA_UNROLL
      for (int e = 0; e < 4; ++e) TESSERA_UNROLL
      for (int i = 0; i < 2; ++i) {
        own[e][i] = sums[4 * part + e][2 * half + i];
        if (kPaired) up[e][i] = sums[N / 16 + 4 * part + e][2 * half + i];
      }
      turn_quad(own, v);
      if (kPaired) turn_quad(up, other);
      if (!stores(half, part)) continue;
      if constexpr (Bytes) TESSERA_UNROLL
      for (int j = 0; j < 8; ++j) {
        v[j] *= scale[j];
        if (kPaired) other[j] *= up_scale[j];
      }
      float before[8];
      if (f.epilogue.residual) residual_of(half, part, before);
      finish_values<Kind>(v, other, bias, gate[half] != nullptr, factor[half],
                          f.epilogue.residual != nullptr, before);
      write(half, c, v);
    }
    if (part + kAhead < kParts) read_residual(part + kAhead);
  }
  __device__ void read_bias(int64_t c, float (&bias)[8]) const {
    if constexpr (Words) {
      load<8>(f.epilogue.bias, DType::f32, c, bias);
    } else {
      TESSERA_UNROLL
      for (int j = 0; j < 8; ++j)
        if (c + j < f.n) bias[j] = f.epilogue.bias[c + j];
    }
  }
  __device__ void residual_of(int half, int part, float (&before)[8]) const {
    const Epilogue& e = f.epilogue;
    const int64_t c = column + part * 32, at = row[half] * e.residual_stride + c;
    if constexpr (Words) {
      if (early)
        widen_word<BFloat16>(residual[part % kAhead][half], before);
      else
        load<8>(e.residual, DType::f32, at, before);
    } else {
      float one[1];
      TESSERA_UNROLL
      for (int j = 0; j < 8; ++j) {
        if (c + j >= f.n) continue;
        load<1>(e.residual, e.residual_dtype, at + j, one);
        before[j] = one[0];
      }
    }
  }
  __device__ void store_rest(int64_t at, const float (&v)[8]) const {
    float rest[8];
    TESSERA_UNROLL
    for (int j = 0; j < 8; ++j) rest[j] = v[j] - widen(narrow<BFloat16>(v[j]));
    store<8>(f.rest, DType::bf16, at, rest);
  }
  __device__ void write(int half, int64_t c, const float (&v)[8]) const {
    const DType dtype = f.y_dtype == DType::f32 ? DType::f32 : DType::bf16;
    const int64_t at = row[half] * f.y_stride + c;
    if constexpr (Words) {
      store<8>(f.y, dtype, at, v);
      if constexpr (kPaired)
        if (f.rest) store_rest(at, v);
    } else {
      TESSERA_UNROLL
      for (int j = 0; j < 8; ++j) {
        const float one[1] = {v[j]};
        if (c + j < f.n) store<1>(f.y, dtype, at + j, one);
      }
    }
  }
};

/// sums = products of the next `depth` blocks, `used` blocks after the first; of 64 rows each, from
/// `first` of the tile on.
template <int N, bool Bytes, int Halves>
__device__ inline void multiply_blocks(float (&sums)[Halves][N / 8][4],
                                       const ProductShared<N, Bytes>& shared, int first, int depth,
                                       int& used) {
  using Tile = ProductTile<N, Bytes>;
  for (int block = 0; block < depth; ++block, ++used) {
    const int s = used % Tile::kStages;
    const unsigned char* left = shared.left + s * Tile::kLeftBytes + first * 128;
    barrier_wait(shared.full + s, used / Tile::kStages % 2);
    products_begin();
    TESSERA_UNROLL
    for (int step = 0; step < kProductDepth / 16; ++step) TESSERA_UNROLL
    for (int half = 0; half < Halves; ++half)
      multiply_shared<N>(sums[half], tile_descriptor(left + half * 64 * 128 + step * 32, 16),
                         tile_descriptor(shared.right + s * Tile::kRightBytes + step * 32, 16),
                         block + step > 0);
    products_commit();
    products_leave<1>();
    if (block > 0) leave(shared.empty + (used - 1) % Tile::kStages);
  }
  TESSERA_UNROLL
  for (int half = 0; half < Halves; ++half) products_wait<0>(sums[half]);
  leave(shared.empty + (used - 1) % Tile::kStages);
}

// The code below is shared by products, convolutions and experts. `Work` describes the tiles:
//   each(f)            f(place) for the tiles of this block; place.column is the first column of y
//   fetch(place, step) calls step(boxes) for each block of kProductDepth in turn; boxes(stage)
//                      requests the boxes of x and of w
//   steps()            number of blocks
//   row(place, i)      row of y for row i of a tile; negative: none
//   finish(place)      epilogue data
//   kFetchRegisters    registers of the threads that fetch and widen
//   kBytes             true if w is i8; scales(place) then gives the scales of the columns

template <int N, bool Bytes, class Work>
__device__ inline void fetch_tiles(const Work& work, const ProductShared<N, Bytes>& shared) {
  using Tile = ProductTile<N, Bytes>;
  int used = 0;
  work.each([&](const auto& place) {
    work.fetch(place, [&](const auto& boxes) {
      const int s = used % Tile::kStages;
      barrier_wait(shared.empty + s, used / Tile::kStages % 2 ^ 1);
      const ProductStage stage = shared.stage(s);
      shared.expect(stage);
      boxes(stage);
      ++used;
    });
  });
}

/// Division of tiles among the computing warpgroups. `together`: each takes half of every tile's
/// rows. `in_turn`: each takes whole tiles, so that an epilogue overlaps with the next products
/// (ping-pong schedule of CUTLASS).
enum class Sharing : uint8_t { together, in_turn };

template <int N, Activation Kind, bool Words, Sharing Share, bool Bytes, class Work>
__device__ inline void compute_tiles(const Work& work, const ProductShared<N, Bytes>& shared) {
  constexpr bool kInTurn = Share == Sharing::in_turn;
  using Tile = TileFinish<N, Kind, Words, kInTurn || Bytes ? 1 : 4, Bytes>;
  constexpr int kHalves = kInTurn ? 2 : 1;
  const int thread = static_cast<int>(threadIdx.x), group = own_group();
  const int first = kInTurn ? 0 : group * 64;  // first row in the tile
  int used = 0, turn = 0;
  if (kInTurn && group == 1) pass_turn<2>(group);
  work.each([&](const auto& place) {
    if (kInTurn && turn++ % 2 != group) {
      used += work.steps();
      return;
    }
    const Finish& f = work.finish(place);
    const auto finish_of = [&](int half) {
      Tile tile(f, first + half * 64 + thread % kGroup / kWarp * 16, place.column, [&](int i) {
        const int64_t row = work.row(place, i);
        return row < 0 ? f.rows : row;
      });
      if constexpr (Bytes) tile.scales = work.scales(place);
      return tile;
    };
    Tile finish = finish_of(0);
    float sums[kHalves][N / 8][4];
    // Barriers distinguish only two phases, so no warpgroup may run ahead of the other by more.
    if constexpr (kInTurn) take_turn(group);
    multiply_blocks<N>(sums, shared, first, work.steps(), used);
    if constexpr (kInTurn) pass_turn<2>(group);
    TESSERA_UNROLL
    for (int part = 0; part < Tile::kParts; ++part) finish.finish(sums[0], part);
    if constexpr (kInTurn) {
      Tile second = finish_of(1);
      TESSERA_UNROLL
      for (int part = 0; part < Tile::kParts; ++part) second.finish(sums[1], part);
    }
  });
  if (kInTurn && turn % 2 == group) take_turn(group);
}

/// Processes the tiles of a kernel with kSm90Threads threads, launched by launch_of_tiles().
template <int N, Activation Kind, bool Words = true, Sharing Share = Sharing::together, class Work>
__device__ inline void make_tiles(const Work& work) {
  const ProductShared<N, Work::kBytes> shared(dynamic_shared());
  if (threadIdx.x == 0) shared.open(Share == Sharing::in_turn ? kGroup / kWarp : kComputingWarps);
  after_those_before();
  divide<Work::kFetchRegisters>([&] { fetch_tiles<N>(work, shared); },
                                [&] { compute_tiles<N, Kind, Words, Share>(work, shared); },
                                [&](int thread) {
                                  if constexpr (Work::kBytes) widen_tiles<N>(work, shared, thread);
                                });
}

template <int N, bool Bytes = false>
Launch launch_of_tiles(int64_t tiles) {
  const int64_t most = unspared(multiprocessors());
  return {.blocks = tiles < most ? tiles : most,
          .threads = kSm90Threads,
          .shared = ProductTile<N, Bytes>::kShared,
          .early = true};
}

}  // namespace tessera::kernels::cuda

#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/finish.h"
#include "kernels/cuda/library_product.h"
#include "kernels/cuda/row_map.h"

namespace tessera::kernels::cuda {

constexpr int kProductRows = 128;           // rows of x in a tile: 64 for each warpgroup
constexpr int kProductDepth = 64;           // columns of x and w in a stage
constexpr int64_t kFewestProductRows = 64;  // below, finishing the library's sums is cheap

/// Sizes of a tile of `N` rows of w; paired weights give half as many columns of y. `Bytes`: w is
/// int8 and widened in shared memory.
template <int N, bool Bytes = false>
struct ProductTile {
  static constexpr int kLeftBytes = kProductRows * 128, kRightBytes = N * 128;
  static constexpr int kByteBytes = Bytes ? N * kProductDepth : 0;
  static constexpr int kStages = N == 256 ? (Bytes ? 3 : 4) : N == 192 ? (Bytes ? 4 : 5) : 6;
  /// Stages, barriers, and padding for alignment to 1,024.
  static constexpr int64_t kShared = 1024 + kStages * (kLeftBytes + kRightBytes + kByteBytes) + 256;
};

/// True if matmul_sm90() supports these matrices: x in bf16, w in bf16 or int8, rows of whole
/// 16-byte words, and enough of them.
inline bool serves_sm90(const LibraryProduct& p) {
  const auto k = static_cast<int>(p.k);
  const bool int8 = p.dtype == tensor::DType::i8;
  return (int8 || p.dtype == tensor::DType::bf16) && p.rows >= kFewestProductRows && p.k > 0 &&
         p.k % 8 == 0 && fits_row_map(p.x, p.x_stride, 1, k) &&
         (int8 ? fits_byte_map(p.w, k) : fits_row_map(p.w, p.k, 1, k));
}

/// Inputs of the time model of a product; `complete`: the library finishes the product alone.
struct ProductSize {
  int64_t rows, columns, k;
  bool paired = false, complete = false;
};
/// Rows of w in a tile, and the division among warpgroups (see Sharing); `library`: cuBLASLt with a
/// finishing kernel.
enum class Tiles : uint8_t { library, of_128, in_turn_128, of_192, of_256 };

struct ProductChoice {
  Tiles tiles;
  double time;  ///< microseconds
};

/// Chooses tiles for products in a single kernel, by a model fitted on an H200,
/// docs/results/gpu.md.
constexpr ProductChoice best_tiles(std::span<const ProductSize> all, int64_t multiprocessors) {
  struct Way {
    Tiles tiles;
    int width;
    double step, tile, start;  // microseconds: for kProductDepth, for the rest of a tile, and once
  };
  // In-turn tiles hide half of the rest of a pair; fitted on four kernels in the profiler.
  constexpr Way kWays[] = {{Tiles::of_128, 128, 0.424, 3.00, -1.8},
                           {Tiles::in_turn_128, 128, 0.38, 10.5, 6.0},
                           {Tiles::of_192, 192, 0.600, 4.95, -2.9},
                           {Tiles::of_256, 256, 0.713, 7.04, -3.7}};
  const auto ceil = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  ProductChoice best{Tiles::library, 1e300};
  for (const Way& way : kWays) {
    int64_t tiles = 0;
    for (const ProductSize& p : all)
      tiles += ceil(p.rows, kProductRows) * ceil(p.columns, p.paired ? way.width / 2 : way.width);
    const double products = static_cast<double>(ceil(all[0].k, kProductDepth)) * way.step;
    const double alone = products + way.tile, beside = alone / 2 > products ? alone / 2 : products;
    const double each = way.tiles == Tiles::in_turn_128 ? beside : alone;
    const double time = static_cast<double>(ceil(tiles, multiprocessors)) * each + way.start;
    if (time < best.time) best = {way.tiles, time};
  }
  return best;
}
constexpr ProductChoice best_way(const ProductSize& p, int64_t multiprocessors) {
  constexpr double kLibraryFlops = 729e6, kLibrarySums = 0.746e6, kLibraryStart = 4.8,
                   kCompleteStart = 3;
  const ProductChoice own = best_tiles({&p, 1}, multiprocessors);
  if (p.paired) return own;  // not measured there
  const double sums = static_cast<double>(p.rows) * static_cast<double>(p.columns);
  const double products = 2 * sums * static_cast<double>(p.k) / kLibraryFlops;
  const double library =
      products + (p.complete ? kCompleteStart : sums / kLibrarySums + kLibraryStart);
  return p.complete || library <= own.time ? ProductChoice{Tiles::library, library} : own;
}
/// Chooses tiles for products with a common k; `library`: separate products take no longer.
constexpr Tiles group_tiles(std::span<const ProductSize> all, int64_t multiprocessors) {
  double alone = 0;
  for (const ProductSize& p : all) alone += best_way(p, multiprocessors).time;
  const ProductChoice together = best_tiles(all, multiprocessors);
  return together.time < alone ? together.tiles : Tiles::library;
}

/// A product with an epilogue: eight columns at a time, without f16.
struct FinishedProduct {
  LibraryProduct product;  ///< `n` counts the rows of w; paired with swiglu only
  Finish finish;
  const float* scales = nullptr;  ///< scales of the rows of w in int8
};
constexpr int kMostGrouped = 8;

/// x w^T for compute capability 9, finished in registers; keeps the row rule. Runs up to
/// kMostGrouped independent products with the same k and activation in a single kernel; weights in
/// int8 alone, in tiles of their own.
void matmul_sm90(std::span<const FinishedProduct> all, Tiles tiles);

}  // namespace tessera::kernels::cuda

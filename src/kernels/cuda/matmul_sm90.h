#pragma once

#include <cstdint>

#include "kernels/cuda/library_product.h"
#include "kernels/cuda/row_map.h"

namespace tessera::kernels::cuda {

struct Finish;

constexpr int kProductRows = 128;           // of x in a tile: 64 a warpgroup
constexpr int kProductDepth = 64;           // columns of x and w that come at a time
constexpr int64_t kFewestProductRows = 64;  // below, the library's sums cost little to finish

/// Sizes of a tile of `N` rows of w; paired weights give half as many columns of y.
template <int N>
struct ProductTile {
  static constexpr int kLeftBytes = kProductRows * 128, kRightBytes = N * 128;
  static constexpr int kStages = N == 256 ? 4 : N == 192 ? 5 : 6;
  /// Stages, barriers, and room to begin at a multiple of 1,024.
  static constexpr int64_t kShared = 1024 + kStages * (kLeftBytes + kRightBytes) + 256;
};

/// Whether matmul_sm90() takes these matrices: bf16 rows of whole 16-byte words, and not few.
inline bool serves_sm90(const LibraryProduct& p) {
  return p.dtype == tensor::DType::bf16 && p.rows >= kFewestProductRows && p.k > 0 &&
         p.k % 8 == 0 && fits_row_map(p.x, p.x_stride, 1, static_cast<int>(p.k)) &&
         fits_row_map(p.w, p.k, 1, static_cast<int>(p.k));
}

/// A tile's rows of w (128, 192 or 256), and the blocks of a cluster, which share them (1 or 2).
struct ProductWay {
  int width, blocks;
  bool operator==(const ProductWay&) const = default;
};

/// What takes least time by a model of an H200: how many tiles each multiprocessor has in turn,
/// and what bounds a step of one, its tensor cores or what all of them read from the L2 cache.
constexpr ProductWay product_way(int64_t rows, int64_t columns, int64_t k, bool paired,
                                 int64_t multiprocessors) {
  constexpr double kFlops = 5600, kBytes = 5000;  // a nanosecond: of a multiprocessor, of the cache
  constexpr double kTile = 900, kColumn = 8;      // nanoseconds that a tile, and its columns, wait
  const auto ceil = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  ProductWay best{128, 1};
  double least = 1e300;
  for (const ProductWay way : {best, ProductWay{192, 1}, ProductWay{256, 1}, ProductWay{128, 2},
                               ProductWay{192, 2}, ProductWay{256, 2}}) {
    const int64_t tiles =
        ceil(rows, kProductRows * way.blocks) * ceil(columns, paired ? way.width / 2 : way.width);
    const int64_t slots = multiprocessors / way.blocks;
    if (slots == 0) continue;
    const int64_t busy = (tiles < slots ? tiles : slots) * way.blocks;
    const double compute = 2.0 * kProductRows * kProductDepth * way.width / kFlops;
    const double bytes = 128.0 * (kProductRows + double(way.width) / way.blocks);
    const double fetch = bytes * static_cast<double>(busy) / kBytes;
    const double step = compute > fetch ? compute : fetch;
    const double tile =
        static_cast<double>(ceil(k, kProductDepth)) * step + kTile + kColumn * way.width;
    if (const double time = static_cast<double>(ceil(tiles, slots)) * tile; time < least) {
      least = time;
      best = way;
    }
  }
  return best;
}

/// x w^T of a GPU of compute capability 9, finished in registers; keeps the row rule. `p.n` counts
/// the rows of w, which are paired with swiglu alone; finish is read eight columns at a time and
/// has no f16.
void matmul_sm90(const LibraryProduct& p, const Finish& finish, ProductWay way);

}  // namespace tessera::kernels::cuda

#pragma once

#include <cstdint>

#include "kernels/cuda/finish.h"
#include "kernels/cuda/library_product.h"
#include "kernels/cuda/row_map.h"

namespace tessera::kernels::cuda {

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

/// A tile's rows of w, 128, 192 or 256, that take least time; 0: the library and a kernel that
/// finishes its sums take less. By a model of what an H200 took, docs/results/gpu.md.
constexpr int product_width(int64_t rows, int64_t columns, int64_t k, bool paired,
                            int64_t multiprocessors) {
  struct Way {
    int width;
    double step, tile, start;  // microseconds: of kProductDepth, of the rest of a tile, once
  };
  constexpr Way kWays[] = {
      {128, 0.424, 3.00, -1.8}, {192, 0.600, 4.95, -2.9}, {256, 0.713, 7.04, -3.7}};
  constexpr double kLibraryFlops = 729e6, kLibrarySums = 0.746e6, kLibraryStart = 4.8;
  const auto ceil = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const double sums = static_cast<double>(rows) * static_cast<double>(columns);
  int best = 0;  // paired weights were not measured there
  double least = paired ? 1e300
                        : 2 * sums * static_cast<double>(k) / kLibraryFlops + sums / kLibrarySums +
                              kLibraryStart;
  for (const Way& way : kWays) {
    const int64_t tiles =
        ceil(rows, kProductRows) * ceil(columns, paired ? way.width / 2 : way.width);
    const double time = static_cast<double>(ceil(tiles, multiprocessors)) *
                            (static_cast<double>(ceil(k, kProductDepth)) * way.step + way.tile) +
                        way.start;
    if (time >= least) continue;
    least = time;
    best = way.width;
  }
  return best;
}

/// x w^T of a GPU of compute capability 9, finished in registers; keeps the row rule. `p.n` counts
/// the rows of w, which are paired with swiglu alone; finish is read eight columns at a time and
/// has no f16. `width`: see product_width().
void matmul_sm90(const LibraryProduct& p, const Finish& finish, int width);

}  // namespace tessera::kernels::cuda

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
  static constexpr int kStages = N == 256 ? 4 : 6;
  /// Stages, barriers, and room to begin at a multiple of 1,024.
  static constexpr int64_t kShared = 1024 + kStages * (kLeftBytes + kRightBytes) + 256;
};

/// Whether matmul_sm90() takes these matrices: bf16 rows of whole 16-byte words, and not few.
inline bool serves_sm90(const LibraryProduct& p) {
  return p.dtype == tensor::DType::bf16 && p.rows >= kFewestProductRows && p.k > 0 &&
         p.k % 8 == 0 && fits_row_map(p.x, p.x_stride, 1, static_cast<int>(p.k)) &&
         fits_row_map(p.w, p.k, 1, static_cast<int>(p.k));
}

/// x w^T of a GPU of compute capability 9, finished in registers; keeps the row rule. `p.n` counts
/// the rows of w, which are paired with swiglu alone; finish is read eight columns at a time and
/// has no f16.
void matmul_sm90(const LibraryProduct& p, const Finish& finish);

}  // namespace tessera::kernels::cuda

#include "kernels/cuda/few_rows.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/matmul_finish.cuh"

namespace tessera::kernels::cuda {
namespace {

struct FewRows {
  const void *x, *w;
  DType x_dtype;
  int64_t x_stride, k;
  int rows;
};

// A warp multiplies up to Rows rows of x by Columns rows of w.
template <class W, int Rows, int Columns>
__global__ void __launch_bounds__(kFewWarps* kWarp) few_rows_kernel(FewRows p, Finish f) {
  static_assert(Rows * Columns <= kWarp);
  constexpr DType kDtype = std::is_same_v<W, float> ? DType::f32 : DType::bf16;
  after_those_before();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t warp = int64_t{blockIdx.x} * kFewWarps + threadIdx.x / kWarp;
  const int64_t first = warp * Columns, last = f.n - 1;
  if (first > last) return;
  float sums[Rows][Columns] = {};
  TESSERA_UNROLL_SOME
  for (int64_t i = lane * 8; i < p.k; i += kWarp * 8) {
    float w[Columns][8];
    TESSERA_UNROLL
    for (int c = 0; c < Columns; ++c)
      load<8>(p.w, kDtype, (first + c < last ? first + c : last) * p.k + i, w[c]);
    TESSERA_UNROLL
    for (int r = 0; r < Rows; ++r) {
      float x[8];
      load<8>(p.x, p.x_dtype, (r < p.rows ? r : 0) * p.x_stride + i, x);
      TESSERA_UNROLL
      for (int j = 0; j < 8; ++j) {
        if (kDtype == DType::bf16) x[j] = widen(narrow<BFloat16>(x[j]));
        TESSERA_UNROLL
        for (int c = 0; c < Columns; ++c) sums[r][c] = fmaf(x[j], w[c][j], sums[r][c]);
      }
    }
  }
  float lane_sum = 0;
  TESSERA_UNROLL
  for (int r = 0; r < Rows; ++r) TESSERA_UNROLL
  for (int c = 0; c < Columns; ++c) {
    const float sum = sum_over_lanes(sums[r][c], kWarp);
    if (lane == r * Columns + c) lane_sum = sum;
  }
  const int row = lane / Columns;
  if (row < p.rows && row < Rows && first + lane % Columns <= last)
    with_activation(f.epilogue.activation, [&](auto kind) {
      float v[1] = {lane_sum};
      const float up[1] = {0};
      finish_chunk<kind(), 1>(f, row, first + lane % Columns, v, up);
    });
}

template <class W, int Rows>
void run(const FewRows& p, const Finish& f) {
  constexpr int kColumns = 4;  // these columns share the reads of x
  // If these are too few warps, uses a row of w for each.
  const bool many_columns = f.n >= int64_t{2} * kColumns * kFewWarps * multiprocessors();
  const int columns = many_columns ? kColumns : 1;
  launch("matmul", many_columns ? few_rows_kernel<W, Rows, kColumns> : few_rows_kernel<W, Rows, 1>,
         Launch{.blocks = ceil_div<int64_t>(f.n, columns * kFewWarps),
                .threads = kFewWarps * kWarp,
                .early = true},
         p, f);
}

template <class W>
void run(const FewRows& p, const Finish& f) {
  if (p.rows == 1) return run<W, 1>(p, f);
  if (p.rows == 2) return run<W, 2>(p, f);
  p.rows <= 4 ? run<W, 4>(p, f) : run<W, 8>(p, f);
}

}  // namespace

bool serves_few_rows(const MatmulArgs& a) {
  const PackedWeight& w = *a.weight;
  return a.rows <= kFewRows && !w.paired && (w.dtype == DType::f32 || w.dtype == DType::bf16) &&
         w.k % 8 == 0 && in_words(a.x, a.x_dtype, a.x_stride) &&
         in_words(w.data.raw(), w.dtype, w.k);
}

void few_rows(const MatmulArgs& a) {
  const PackedWeight& w = *a.weight;
  const FewRows p{a.x, w.data.raw(), a.x_dtype, a.x_stride, w.k, static_cast<int>(a.rows)};
  const Finish f{nullptr, 0, a.rows, w.n, a.epilogue, a.y, a.y_dtype, a.y_stride};
  w.dtype == DType::f32 ? run<float>(p, f) : run<BFloat16>(p, f);
}

}  // namespace tessera::kernels::cuda

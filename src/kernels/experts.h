#pragma once

#include <cstdint>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/packed_weight.h"
#include "tensor/dtype.h"

namespace tessera::kernels {

/// One expert: down(act(up x + up_bias)) + down_bias.
struct ExpertView {
  const PackedWeight* up = nullptr;  ///< [inner, hidden]; of swiglu and geglu: gate and up, paired
  const PackedWeight* down = nullptr;  ///< [hidden, inner]
  const float* up_bias = nullptr;      ///< [inner] or null; not with paired weights
  const float* down_bias = nullptr;    ///< [hidden] or null
};

/// rows[t * slots + j] = expert ids[t * slots + j] of x[t], rounded to `dtype`; id -1 gives a row
/// of zeros. The inner activation is rounded to the dtype of the weights; with weights in i8, rows
/// and inner activations are whole numbers up to 32,639 times a scale of a row (of `reference`:
/// f32).
struct ExpertsArgs {
  const void* x = nullptr;  ///< [tokens, hidden] of `dtype`
  tensor::DType dtype = tensor::DType::f32;
  int64_t x_stride = 0;
  int64_t tokens = 0, slots = 0, hidden = 0, inner = 0;
  Activation activation = Activation::swiglu;  ///< of all experts
  const int32_t* ids = nullptr;                ///< [tokens, slots], each -1 or a valid expert
  const ExpertView* bank = nullptr;
  int64_t experts = 0;
  void* rows = nullptr;  ///< [tokens * slots, hidden] of `dtype`, dense
};

/// Part of an expert's work: a run of panels of its first or second product, for some of its rows.
/// Tiles of equal rows share `inner`, which up tiles of all panels have written before a down tile
/// reads it. A row depends on no other, so any cut gives the same bits.
struct ExpertTile {
  const ExpertView* expert = nullptr;
  Activation activation = Activation::swiglu;
  const void* x = nullptr;  ///< rows [., hidden] of `dtype`
  tensor::DType dtype = tensor::DType::f32;
  int64_t x_stride = 0;
  int64_t rows = 0;
  /// Row r is x[pair[r] / slots], its result y[pair[r]]; null: both r.
  const int32_t* pair = nullptr;
  int64_t slots = 1;
  int64_t begin = 0, end = 0;  ///< panels
  std::byte* inner = nullptr;  ///< 64-byte aligned, of ExpertTiles::inner_bytes
  void* y = nullptr;           ///< rows [., hidden] of `dtype`, dense
};

/// How an instruction set cuts an expert: the most rows of a tile that stay in its caches, and the
/// panels of both products.
struct ExpertCuts {
  int64_t rows = 1, up_panels = 1, down_panels = 1;
};

/// Experts in tiles, for who decides himself when which is computed.
struct ExpertTiles {
  ExpertCuts (*cuts)(const ExpertView& expert) = nullptr;
  /// Of the inner activations of so many rows, a multiple of 64.
  int64_t (*inner_bytes)(const ExpertView& expert, int64_t rows) = nullptr;
  void (*up)(const ExpertTile& tile) = nullptr;    ///< inner = act(up x + up_bias)
  void (*down)(const ExpertTile& tile) = nullptr;  ///< y = down inner + down_bias
};

/// y[t] = sum over slots j, in order, of weights[t, j] * rows[t * slots + j], then + shared[t]; in
/// f32, rounded to `dtype` once.
struct CombineArgs {
  const void* rows = nullptr;  ///< [tokens * slots, hidden] of `dtype`
  tensor::DType dtype = tensor::DType::f32;
  int64_t row_stride = 0;
  int64_t tokens = 0, slots = 0, hidden = 0;
  const float* weights = nullptr;  ///< [tokens, slots]
  const void* shared = nullptr;    ///< [tokens, hidden] of `dtype`, or null
  int64_t shared_stride = 0;
  void* y = nullptr;  ///< [tokens, hidden] of `dtype`, dense
};

/// The (token, slot) pairs by expert: pair[begin[e] .. begin[e + 1]) are the numbers t * slots + j
/// that go to expert e, rising.
struct ExpertGroups {
  std::vector<int64_t> begin;
  std::vector<int32_t> pair;
};
/// Counting sort of the ids; pairs without an expert are left out.
ExpertGroups group_by_expert(const ExpertsArgs& args);

/// Rows of pairs without an expert: zeros.
void clear_rows_without_expert(const ExpertsArgs& args);
/// A layer in tiles, over tensor::parallel_tasks: all up tiles, then all down tiles. Each touched
/// expert's weights are read once by each part of its rows.
void run_experts(const ExpertTiles& tiles, const ExpertsArgs& args);

namespace reference {
/// Plain loops, sums in f64: defines correct.
void experts(const ExpertsArgs& args);
const ExpertTiles& expert_tiles();
/// Plain loops in slot order, f32.
void combine(const CombineArgs& args);
}  // namespace reference
namespace avx2 {
/// Grouped by expert, over the panel layout.
void experts(const ExpertsArgs& args);
const ExpertTiles& expert_tiles();
void combine(const CombineArgs& args);
}  // namespace avx2
namespace avx512 {
/// As avx2::experts, in its own vectors.
void experts(const ExpertsArgs& args);
const ExpertTiles& expert_tiles();
void combine(const CombineArgs& args);
}  // namespace avx512
namespace amx {
/// As avx512::experts, over AMX tiles.
void experts(const ExpertsArgs& args);
const ExpertTiles& expert_tiles();
}  // namespace amx
namespace cuda {
/// Sorted by expert on the device, tiles on tensor cores (f32: fused multiply-adds); weights as for
/// `reference`, their data in device memory. SwiGLU without biases only.
void experts(const ExpertsArgs& args);
void combine(const CombineArgs& args);
}  // namespace cuda

}  // namespace tessera::kernels

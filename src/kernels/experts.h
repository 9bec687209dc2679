#pragma once

#include <cstdint>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/packed_weight.h"
#include "tensor/dtype.h"

namespace tessera::kernels {

/// Computes down(act(up x + up_bias)) + down_bias.
struct ExpertView {
  const PackedWeight* up = nullptr;  ///< [inner, hidden]; for swiglu and geglu: gate and up, paired
  const PackedWeight* down = nullptr;  ///< [hidden, inner]
  const float* up_bias = nullptr;      ///< [inner] or null; not with paired weights
  const float* down_bias = nullptr;    ///< [hidden] or null
};

/// rows[t * slots + j] = expert ids[t * slots + j] of x[t], rounded to `dtype`; id -1 gives a row
/// of zeros. The inner activation is rounded to the dtype of the weights; with i8 weights, rows and
/// inner activations are integers up to 32,639 times a row scale (`reference`: f32).
struct ExpertsArgs {
  const void* x = nullptr;  ///< [tokens, hidden] in `dtype`
  tensor::DType dtype = tensor::DType::f32;
  int64_t x_stride = 0;
  int64_t tokens = 0, slots = 0, hidden = 0, inner = 0;
  Activation activation = Activation::swiglu;  ///< activation of all experts
  const int32_t* ids = nullptr;                ///< [tokens, slots], each -1 or a valid expert
  const ExpertView* bank = nullptr;
  int64_t experts = 0;
  void* rows = nullptr;  ///< [tokens * slots, hidden] of `dtype`, dense
};

/// A part of an expert's work: a run of panels of the first or second product, for some rows. Tiles
/// of the same rows share `inner`: all up tiles write `inner` before a down tile reads from there.
/// Rows are independent, so any cut gives the same bits.
struct ExpertTile {
  const ExpertView* expert = nullptr;
  Activation activation = Activation::swiglu;
  const void* x = nullptr;  ///< rows [., hidden] of `dtype`
  tensor::DType dtype = tensor::DType::f32;
  int64_t x_stride = 0;
  int64_t rows = 0;
  /// Row r is x[pair[r] / slots], with result y[pair[r]]; null: both are r.
  const int32_t* pair = nullptr;
  int64_t slots = 1;
  int64_t begin = 0, end = 0;  ///< panels
  std::byte* inner = nullptr;  ///< 64-byte aligned, with ExpertTiles::inner_bytes bytes
  void* y = nullptr;           ///< rows [., hidden] of `dtype`, dense
};

/// Cut of an expert for an instruction set: maximum rows of a tile that stay in the caches, and the
/// panels of both products.
struct ExpertCuts {
  int64_t rows = 1, up_panels = 1, down_panels = 1;
};

/// Tile interface of experts, for callers with their own schedule.
struct ExpertTiles {
  ExpertCuts (*cuts)(const ExpertView& expert) = nullptr;
  /// Bytes of the inner activations of `rows` rows, a multiple of 64.
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

/// The (token, slot) pairs by expert: pair[begin[e] .. begin[e + 1]) are the increasing numbers t *
/// slots + j of expert e.
struct ExpertGroups {
  std::vector<int64_t> begin;
  std::vector<int32_t> pair;
};
/// Counting sort of the ids; pairs without an expert are skipped.
ExpertGroups group_by_expert(const ExpertsArgs& args);

/// Clears rows of pairs without an expert.
void clear_rows_without_expert(const ExpertsArgs& args);
/// Runs a layer in tiles, over tensor::parallel_tasks: all up tiles, then all down tiles. The
/// weights of each used expert are read once for each part of its rows.
void run_experts(const ExpertTiles& tiles, const ExpertsArgs& args);

namespace reference {
/// Plain loops with f64 sums: the definition of correct results.
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
/// Like avx2::experts, in AVX-512 vectors.
void experts(const ExpertsArgs& args);
const ExpertTiles& expert_tiles();
void combine(const CombineArgs& args);
}  // namespace avx512
namespace amx {
/// Like avx512::experts, over AMX tiles.
void experts(const ExpertsArgs& args);
const ExpertTiles& expert_tiles();
}  // namespace amx
namespace cuda {
/// Sorted by expert on the device, tiles on tensor cores (f32: fused multiply-adds); weights as for
/// `reference`, with data in device memory. Only SwiGLU without biases.
void experts(const ExpertsArgs& args);
void combine(const CombineArgs& args);
}  // namespace cuda

}  // namespace tessera::kernels

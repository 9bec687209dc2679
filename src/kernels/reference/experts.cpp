#include "kernels/experts.h"

#include "kernels/matmul.h"
#include "tensor/scope.h"

namespace tessera::kernels::reference {

namespace {

constexpr int64_t kRows = 8;  // rows of a tile

ExpertCuts cuts(const ExpertView&) { return {kRows, 1, 1}; }

int64_t inner_bytes(const ExpertView& expert, int64_t rows) {
  return (rows * expert.down->k * 4 + 63) / 64 * 64;
}

float* inner_row(const ExpertTile& tile, int64_t r) {
  return reinterpret_cast<float*>(tile.inner) + r * tile.expert->down->k;
}

void up_tile(const ExpertTile& tile) {
  for (int64_t r = 0; tile.begin < tile.end && r < tile.rows; ++r) {
    const int64_t from = tile.pair ? tile.pair[r] / tile.slots : r;
    matmul({.x = static_cast<const std::byte*>(tile.x) + from * tile.x_stride * size_of(tile.dtype),
            .x_dtype = tile.dtype,
            .x_stride = 0,
            .rows = 1,
            .weight = tile.expert->up,
            .epilogue = {.bias = tile.expert->up_bias, .activation = tile.activation},
            .y = inner_row(tile, r),
            .y_dtype = tensor::DType::f32,
            .y_stride = 0});
  }
}

// The product rounds its input, the inner activation, to the dtype of the weights.
void down_tile(const ExpertTile& tile) {
  const int64_t bytes = tile.expert->down->n * size_of(tile.dtype);
  for (int64_t r = 0; tile.begin < tile.end && r < tile.rows; ++r)
    matmul({.x = inner_row(tile, r),
            .x_dtype = tensor::DType::f32,
            .x_stride = 0,
            .rows = 1,
            .weight = tile.expert->down,
            .epilogue = {.bias = tile.expert->down_bias},
            .y = static_cast<std::byte*>(tile.y) + (tile.pair ? tile.pair[r] : r) * bytes,
            .y_dtype = tile.dtype,
            .y_stride = 0});
}

}  // namespace

const ExpertTiles& expert_tiles() {
  static constexpr ExpertTiles kTiles{cuts, inner_bytes, up_tile, down_tile};
  return kTiles;
}

void experts(const ExpertsArgs& args) { run_experts(expert_tiles(), args); }

void combine(const CombineArgs& args) {
  tensor::with_float_type(args.dtype, [&](auto type) {
    using T = decltype(type);
    const T* rows = static_cast<const T*>(args.rows);
    const T* shared = static_cast<const T*>(args.shared);
    tensor::parallel_for(args.tokens, 4, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t)
        for (int64_t c = 0; c < args.hidden; ++c) {
          float sum = 0;
          for (int64_t j = 0; j < args.slots; ++j) {
            const int64_t i = t * args.slots + j;
            sum += args.weights[i] * tensor::to_float(rows[i * args.row_stride + c]);
          }
          if (shared) sum += tensor::to_float(shared[t * args.shared_stride + c]);
          static_cast<T*>(args.y)[t * args.hidden + c] = tensor::from_float<T>(sum);
        }
    });
  });
}

}  // namespace tessera::kernels::reference

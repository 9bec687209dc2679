#include "kernels/experts.h"

#include <cstring>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/scratch.h"

namespace tessera::kernels::onednn {
namespace {

constexpr int64_t kRows = 256;  // of a tile: what the library multiplies at once

// The library has no products of f32 rows and int8 weights with a scale a column.
bool plain(const ExpertView& expert) { return expert.down->dtype == tensor::DType::i8; }

ExpertCuts cuts(const ExpertView& expert) {
  return plain(expert) ? reference::expert_tiles().cuts(expert) : ExpertCuts{kRows, 1, 1};
}

int64_t inner_bytes(const ExpertView& expert, int64_t rows) {
  return reference::expert_tiles().inner_bytes(expert, rows);
}

// Gathers the rows, for the first product.
void up_tile(const ExpertTile& tile) {
  if (plain(*tile.expert)) return reference::expert_tiles().up(tile);
  if (tile.begin == tile.end) return;
  const PackedWeight& up = *tile.expert->up;
  const int64_t size = size_of(tile.dtype), row = up.k * size;
  std::vector<std::byte> x(static_cast<size_t>(tile.rows * row));
  for (int64_t r = 0; r < tile.rows; ++r) {
    const int64_t from = tile.pair ? tile.pair[r] / tile.slots : r;
    std::memcpy(x.data() + r * row,
                static_cast<const std::byte*>(tile.x) + from * tile.x_stride * size,
                static_cast<size_t>(row));
  }
  matmul({.x = x.data(),
          .x_dtype = tile.dtype,
          .x_stride = up.k,
          .rows = tile.rows,
          .weight = &up,
          .epilogue = {.bias = tile.expert->up_bias, .activation = tile.activation},
          .y = tile.inner,
          .y_dtype = tensor::DType::f32,
          .y_stride = up.n});
}

// Sends the results of the second product to their places.
void down_tile(const ExpertTile& tile) {
  if (plain(*tile.expert)) return reference::expert_tiles().down(tile);
  if (tile.begin == tile.end) return;
  const PackedWeight& down = *tile.expert->down;
  const int64_t row = down.n * size_of(tile.dtype);
  std::vector<std::byte> y(static_cast<size_t>(tile.rows * row));
  matmul({.x = tile.inner,
          .x_dtype = tensor::DType::f32,
          .x_stride = down.k,
          .rows = tile.rows,
          .weight = &down,
          .epilogue = {.bias = tile.expert->down_bias},
          .y = y.data(),
          .y_dtype = tile.dtype,
          .y_stride = down.n});
  for (int64_t r = 0; r < tile.rows; ++r)
    std::memcpy(static_cast<std::byte*>(tile.y) + (tile.pair ? tile.pair[r] : r) * row,
                y.data() + r * row, static_cast<size_t>(row));
}

}  // namespace

const ExpertTiles& expert_tiles() {
  static constexpr ExpertTiles kTiles{cuts, inner_bytes, up_tile, down_tile};
  return kTiles;
}

// A tile has all columns, which the library spreads over the threads: expert after expert.
void experts(const ExpertsArgs& args) {
  if (args.experts > 0 && plain(args.bank[0])) return reference::experts(args);
  clear_rows_without_expert(args);
  const ExpertGroups groups = group_by_expert(args);
  for (int64_t e = 0; e < args.experts; ++e) {
    const int64_t begin = groups.begin[static_cast<size_t>(e)];
    const int64_t count = groups.begin[static_cast<size_t>(e) + 1] - begin;
    if (count == 0) continue;
    ExpertTile all{.expert = &args.bank[e],
                   .activation = args.activation,
                   .x = args.x,
                   .dtype = args.dtype,
                   .x_stride = args.x_stride,
                   .rows = count,
                   .pair = groups.pair.data() + begin,
                   .slots = args.slots,
                   .end = 1,
                   .y = args.rows};
    all.inner = thread_scratch(1).at_least(inner_bytes(args.bank[e], count));
    up_tile(all);
    down_tile(all);
  }
}

}  // namespace tessera::kernels::onednn

#include "kernels/experts.h"

#include <algorithm>

#include "kernels/wide/product.h"

namespace tessera::kernels::wide {
namespace {

// Digits are computed from complete rows; until then rows are dense f32.
RowLayout inner_layout(const Engine& e, const ExpertView& expert, int64_t rows) {
  if (e.pack_digits) return {rows, ceil_div(expert.down->k, 16), 1, false, 64};
  return e.layout(rows, panel_shape(*expert.down).steps, expert.down->dtype);
}

}  // namespace

ExpertCuts expert_cuts(const Engine& e, const ExpertView& expert) {
  const PanelShape up = panel_shape(*expert.up), down = panel_shape(*expert.down);
  return {resident_rows(e, std::max(up.steps, down.steps), expert.down->dtype), up.panels,
          down.panels};
}

int64_t expert_inner_bytes(const Engine& e, const ExpertView& expert, int64_t rows) {
  return inner_layout(e, expert, rows).bytes();
}

void expert_up_tile(const Engine& e, const ExpertTile& tile) {
  const ExpertView& expert = *tile.expert;
  const DType dtype = expert.down->dtype;
  const RowLayout layout = e.layout(tile.rows, panel_shape(*expert.up).steps, dtype),
                  next = inner_layout(e, expert, tile.rows);
  std::byte* const x = thread_scratch(0).at_least(layout.bytes());
  e.kernels().pack(e, {tile.x, tile.dtype, tile.x_stride, expert.up->k, tile.pair, tile.slots}, 0,
                   layout, dtype, x);
  const auto writer = e.kernels().inner(e, tile.inner, next, expert, tile.activation);
  e.sweep(x, layout, *expert.up, {tile.begin, tile.end}, *writer);
}

void expert_down_tile(const Engine& e, const ExpertTile& tile) {
  const ExpertView& expert = *tile.expert;
  MatmulArgs out;
  out.weight = expert.down;
  out.epilogue.bias = expert.down_bias;
  out.y = tile.y;
  out.y_dtype = tile.dtype;
  out.y_stride = expert.down->n;
  const auto writer = e.kernels().epilogue(out, 0, tile.pair);
  RowLayout layout = inner_layout(e, expert, tile.rows);
  const std::byte* inner = tile.inner;
  if (e.pack_digits) {
    const RowSource dense{inner, DType::f32, layout.steps * 16, expert.down->k};
    layout = e.layout(tile.rows, panel_shape(*expert.down).steps, expert.down->dtype);
    std::byte* const packed = thread_scratch(0).at_least(layout.bytes());
    e.kernels().pack(e, dense, 0, layout, expert.down->dtype, packed);
    inner = packed;
  }
  e.sweep(inner, layout, *expert.down, {tile.begin, tile.end}, *writer);
}

}  // namespace tessera::kernels::wide

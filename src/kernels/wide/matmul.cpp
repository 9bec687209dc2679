#include "kernels/matmul.h"

#include <unistd.h>

#include <algorithm>

#include "kernels/packed_transpose.h"
#include "kernels/wide/product.h"
#include "tensor/scope.h"

namespace tessera::kernels::wide {
namespace {

// Below kFewRows, products wait for weights; above, more of the weights come from L3, at lower
// cost.
constexpr int64_t kFewRows = 96, kWorthAPass = 336, kMostBytes = int64_t{4} << 20;

int64_t l2_bytes() {
  const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return bytes > 0 ? bytes : int64_t{1} << 20;
}

// Few rows: packed once, and each task takes some panels for all rows.
void multiply_by_panels(const Engine& e, const MatmulArgs& args, const PanelShape& shape) {
  const PackedWeight& w = *args.weight;
  const RowLayout layout = e.layout(args.rows, shape.steps, w.dtype);
  std::byte* const x = thread_scratch(1).at_least(layout.bytes());
  const RowSource source{args.x, args.x_dtype, args.x_stride, w.k, nullptr, 1};
  e.kernels().pack(e, source, 0, layout, w.dtype, x);
  const int64_t tasks = std::min<int64_t>(shape.panels, 4 * tensor::thread_count());
  tensor::parallel_tasks(tasks, [&](int64_t task) {
    const auto writer = e.kernels().epilogue(args, 0, nullptr);
    e.sweep(x, layout, w, share(shape.panels, tasks, task), *writer);
  });
}

// Many rows: each task packs as many as fit into L2 and passes all panels over them.
void multiply_by_rows(const Engine& e, const MatmulArgs& args, const PanelShape& shape,
                      int64_t parts) {
  const PackedWeight& w = *args.weight;
  const int64_t units = ceil_div(args.rows, e.most);
  const RowSource source{args.x, args.x_dtype, args.x_stride, w.k, nullptr, 1};
  tensor::parallel_tasks(parts, [&](int64_t part) {
    const Range unit = share(units, parts, part);
    const int64_t first = unit.begin * e.most;
    const int64_t rows = std::min(unit.end * e.most, args.rows) - first;
    const RowLayout layout = e.layout(rows, shape.steps, w.dtype);
    std::byte* const x = thread_scratch(0).at_least(layout.bytes());
    e.kernels().pack(e, source, first, layout, w.dtype, x);
    const auto writer = e.kernels().epilogue(args, first, nullptr);
    e.sweep(x, layout, w, {0, shape.panels}, *writer);
  });
}

}  // namespace

int64_t resident_rows(const Engine& e, int64_t steps, DType weight) {
  static const int64_t half = std::clamp(l2_bytes() / 2, int64_t{1} << 18, int64_t{1} << 20);
  // Bytes of a whole group: a padded group with a single row takes as much.
  const int64_t row = e.layout(e.most, std::max<int64_t>(steps, 1), weight).bytes() / e.most;
  int64_t rows = half / row;
  if (rows < kFewRows) rows = std::max(rows, std::min(kWorthAPass, kMostBytes / row));
  return std::max<int64_t>(1, rows / e.most) * e.most;
}

void multiply(const Engine& e, const MatmulArgs& args) {
  if (args.rows == 0) return;
  if (is_table(*args.weight)) return multiply_by_table(e, args);
  const PanelShape shape = panel_shape(*args.weight);
  const int64_t threads = tensor::thread_count(), units = ceil_div(args.rows, e.most);
  const int64_t parts = ceil_div(args.rows, resident_rows(e, shape.steps, args.weight->dtype));
  if (parts < threads || units == 1) return multiply_by_panels(e, args, shape);
  multiply_by_rows(e, args, shape, std::min(ceil_div(parts, threads) * threads, units));
}

}  // namespace tessera::kernels::wide

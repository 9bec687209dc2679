#include <algorithm>

#include "kernels/packed_transpose.h"
#include "kernels/wide/product.h"
#include "tensor/scope.h"

namespace tessera::kernels::wide {
namespace {

constexpr int64_t kMostTogether = 2048;  // rows whose sums are kept while the table passes

/// Rows of x in bands, each of some groups, which threads pack beside each other.
class Bands {
 public:
  Bands(const Engine& e, int64_t rows, int64_t most_steps, DType weight)
      : e_(e),
        weight_(weight),
        rows_(rows),
        units_(ceil_div(rows, e.most)),
        count_(std::min<int64_t>(units_, 4 * tensor::thread_count())),
        bytes_(
            ceil_div(e.layout(ceil_div(units_, count_) * e.most, most_steps, weight).bytes(), 64) *
            64) {}

  int64_t bytes() const { return count_ * bytes_; }
  void pack(const RowSource& source, int64_t first, int64_t steps, std::byte* x) const {
    tensor::parallel_tasks(count_, [&](int64_t b) {
      e_.kernels().pack(e_, source, first + begin(b), layout(b, steps), weight_, x + b * bytes_);
    });
  }
  void extend(const std::byte* x, int64_t steps, const std::byte* panel, float* sums,
              bool beginning) const {
    for (int64_t b = 0; b < count_; ++b)
      e_.extend(x + b * bytes_, layout(b, steps), weight_, panel, sums + begin(b) * kPanelColumns,
                beginning);
  }

 private:
  int64_t begin(int64_t b) const { return share(units_, count_, b).begin * e_.most; }
  RowLayout layout(int64_t b, int64_t steps) const {
    return e_.layout(std::min(begin(b + 1), rows_) - begin(b), steps, weight_);
  }

  const Engine& e_;
  const DType weight_;
  const int64_t rows_, units_, count_, bytes_;
};

// Rows [first, first + rows) of x.
void multiply_together(const Engine& e, const MatmulArgs& args, int64_t first, int64_t rows) {
  const PackedWeight& w = *args.weight;
  const PanelShape shape = panel_shape(w);
  const int64_t most = e.chunk(std::max<int64_t>(shape.steps, 1)), step = step_elements(w.dtype);
  const Bands bands(e, rows, most, w.dtype);
  std::byte* const x =
      thread_scratch(1).at_least(bands.bytes() + shape.panels * rows * kPanelColumns * 4);
  float* const sums = reinterpret_cast<float*>(x + bands.bytes());
  const auto each_panel = [&](const auto& f) {
    tensor::parallel_for(shape.panels, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) f(p, sums + p * rows * kPanelColumns);
    });
  };
  if (shape.steps == 0) std::fill_n(sums, shape.panels * rows * kPanelColumns, 0.0f);
  for (int64_t s = 0; s < shape.steps; s += most) {
    const int64_t steps = std::min(most, shape.steps - s);
    const auto* const from =
        static_cast<const std::byte*>(args.x) + s * step * size_of(args.x_dtype);
    bands.pack({from, args.x_dtype, args.x_stride, w.k - s * step, nullptr, 1}, first, steps, x);
    each_panel([&](int64_t p, float* of_panel) {
      std::byte* const panel = thread_scratch(0).at_least(most * kStepBytes);
      pack_steps(w, p, s, steps, panel);
      bands.extend(x, steps, panel, of_panel, s == 0);
    });
  }
  each_panel([&](int64_t p, const float* of_panel) {
    e.kernels().epilogue(args, first, nullptr)->write(0, rows, p, of_panel);
  });
}

}  // namespace

void multiply_by_table(const Engine& e, const MatmulArgs& args) {
  for (int64_t first = 0; first < args.rows; first += kMostTogether)
    multiply_together(e, args, first, std::min(kMostTogether, args.rows - first));
}

}  // namespace tessera::kernels::wide

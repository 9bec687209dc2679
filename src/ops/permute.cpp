#include "ops/permute.h"

#include <array>

#include "base/fail.h"
#include "kernels/copy.h"
#include "kernels/table.h"
#include "tensor/run_watcher.h"
#include "tensor/shape_format.h"

namespace tessera::ops {

using kernels::CopyArgs;

Tensor permute(const Tensor& x, std::span<const int64_t> sizes, std::span<const int> order,
               const tensor::Shape& shape) {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  require(x.dense() && count == x.elements() && shape.elements() == count &&
              sizes.size() <= CopyArgs::kMostAxes && order.size() == sizes.size(),
          ErrorCode::usage, "permute: x {}, read as {} axes, cannot become {}", x.shape(),
          sizes.size(), shape);
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  tensor::count_op("permute", 0, 2 * static_cast<double>(x.bytes()), tensor::op_size(x));
  std::array<int64_t, CopyArgs::kMostAxes> stride{};
  int64_t step = 1;
  for (size_t a = sizes.size(); a-- > 0; step *= sizes[a]) stride[a] = step;
  CopyArgs args{
      .x = x.raw(), .y = y.raw(), .element = tensor::size_of(x.dtype()), .axes = sizes.size()};
  unsigned visited = 0;
  for (size_t a = 0; a < order.size(); ++a) {
    const auto from = static_cast<size_t>(order[a]);
    require(from < sizes.size() && (visited >> from & 1u) == 0, ErrorCode::usage,
            "permute: axis {} stands twice in the order or is none of {}", order[a], sizes.size());
    visited |= 1u << from;
    args.size[a] = sizes[from], args.x_stride[a] = stride[from];
  }
  step = 1;
  for (size_t a = sizes.size(); a-- > 0; step *= args.size[a]) args.y_stride[a] = step;
  if (!x.is_meta() && count > 0) kernels::table_of(x.device()).copy(args);
  return y;
}

}  // namespace tessera::ops

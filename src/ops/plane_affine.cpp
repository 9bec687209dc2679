#include "ops/plane_affine.h"

#include "base/fail.h"
#include "kernels/table.h"
#include "ops/upload.h"
#include "tensor/run_watcher.h"
#include "tensor/shape_format.h"

namespace tessera::ops {
Tensor plane_affine(const Tensor& x, const Tensor& norm, const Tensor& y, const Tensor& b) {
  require(x.rank() == 4 && x.dense() && tensor::is_float(x.dtype()) && y.rank() == 4 &&
              y.size(3) == x.size(3) && b.shape() == y.shape() && y.dtype() == DType::f32 &&
              b.dtype() == DType::f32 && norm.elements() == 2 * x.size(3),
          ErrorCode::usage, "plane_affine: x {}, norm {}, y {} and b {} do not fit", x.shape(),
          norm.shape(), y.shape(), b.shape());
  require_beside("plane_affine", "norm", norm, x.device());
  require_beside("plane_affine", "y", y, x.device());
  require_beside("plane_affine", "b", b, x.device());
  Tensor out = Tensor::empty(x.shape(), x.dtype(), x.device());
  tensor::count_op("plane_affine", 12 * double(x.elements()), 2 * double(x.bytes()),
                   tensor::op_size(x));
  if (x.is_meta() || x.elements() == 0) return out;
  kernels::table_of(x.device())
      .plane_affine({.x = x.raw(),
                     .dtype = x.dtype(),
                     .size = {x.size(0), x.size(1), x.size(2)},
                     .field = {y.size(0), y.size(1), y.size(2)},
                     .channels = x.size(3),
                     .scale_shift = norm.data<float>(),
                     .gain = y.data<float>(),
                     .bias = b.data<float>(),
                     .y = out.raw()});
  return out;
}

}  // namespace tessera::ops

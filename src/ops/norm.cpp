#include "ops/norm.h"

#include "base/fail.h"
#include "kernels/norm.h"
#include "kernels/table.h"
#include "tensor/scope.h"
#include "tensor/shape_format.h"

namespace tessera::ops {
namespace {

void check_vector(const char* op, const char* name, const Tensor& v, int64_t width) {
  require(!v.defined() || (v.rank() == 1 && v.size(0) == width && v.dtype() == DType::f32),
          ErrorCode::usage, "{}: {} {} of {}; expected f32 [{}]", op, name, v.shape(),
          v.defined() ? name_of(v.dtype()) : "", width);
}

void check_rows(const char* op, const char* name, const Tensor& v, int64_t channels,
                const NormOptions& o, int64_t tokens) {
  if (!v.defined()) return;
  require(v.rank() == 2 && v.size(1) == channels && v.dtype() == DType::f32, ErrorCode::usage,
          "{}: {} {} of {}; expected f32 [rows, {}]", op, name, v.shape(), name_of(v.dtype()),
          channels);
  o.row_of.check(op, tokens, name, v);
}

Tensor norm(const char* op, const Tensor& x, const NormOptions& o, bool centred) {
  require(x.rank() == 2 && (x.dtype() == DType::f32 || x.dtype() == DType::bf16), ErrorCode::usage,
          "{}: x {} of {}; expected f32 or bf16 [tokens, channels]", op, x.shape(),
          name_of(x.dtype()));
  const int64_t tokens = x.size(0), channels = x.size(1), width = o.width ? o.width : channels;
  require(width > 0 && channels % width == 0, ErrorCode::usage,
          "{}: {} channels cannot be cut into runs of {}", op, channels, width);
  check_vector(op, "weight", o.weight, width);
  check_vector(op, "bias", o.bias, width);
  check_rows(op, "shift", o.shift, channels, o, tokens);
  check_rows(op, "scale", o.scale, channels, o, tokens);
  require_beside(op, "weight", o.weight, x.device());
  require_beside(op, "bias", o.bias, x.device());
  require_beside(op, "shift", o.shift, x.device());
  require_beside(op, "scale", o.scale, x.device());
  const Tensor y = result_of(op, o.into, x.shape(), x.dtype(), x.device());
  if (auto* meter = tensor::current_scope().meter.get())
    meter->add(op, 8 * double(x.elements()), 2 * double(x.bytes()));
  if (x.is_meta() || tokens == 0) return y;
  kernels::NormArgs a{.x = x.raw(),
                      .x_stride = x.stride(0),
                      .y = y.raw(),
                      .y_stride = y.stride(0),
                      .dtype = x.dtype(),
                      .tokens = tokens,
                      .groups = channels / width,
                      .width = width,
                      .centred = centred,
                      .eps = o.eps};
  if (o.weight.defined()) a.weight = o.weight.data<float>();
  if (o.bias.defined()) a.bias = o.bias.data<float>();
  if (o.shift.defined()) a.shift = o.shift.data<float>(), a.shift_stride = o.shift.stride(0);
  if (o.scale.defined()) a.scale = o.scale.data<float>(), a.scale_stride = o.scale.stride(0);
  if (a.shift || a.scale) a.row_of = o.row_of.data();
  kernels::table_of(x.device()).norm(a);
  return y;
}

}  // namespace

Tensor layer_norm(const Tensor& x, const NormOptions& options) {
  return norm("layer_norm", x, options, true);
}

Tensor rms_norm(const Tensor& x, const NormOptions& options) {
  return norm("rms_norm", x, options, false);
}

}  // namespace tessera::ops

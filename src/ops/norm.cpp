#include "ops/norm.h"

#include "base/fail.h"
#include "kernels/norm.h"
#include "kernels/table.h"
#include "tensor/device_pool.h"
#include "tensor/run_watcher.h"
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

void check_turn(const char* op, const RotaryTable& turn, int64_t tokens, tensor::Device device) {
  for (const Tensor* t : {&turn.cos, &turn.sin}) {
    require(t->rank() == 2 && t->size(0) == tokens && t->shape() == turn.cos.shape() &&
                t->dtype() == DType::f32 && t->dense(),
            ErrorCode::usage, "{}: angles {} of {}; expected f32 [{}, pairs]", op, t->shape(),
            name_of(t->dtype()), tokens);
    require_beside(op, "angles", *t, device);
  }
}

bool in_words(const Tensor& x) {
  return !x.defined() || (reinterpret_cast<uintptr_t>(x.raw()) % 16 == 0 &&
                          x.stride(0) * tensor::size_of(x.dtype()) % (x.rank() > 1 ? 16 : 1) == 0);
}

// True if a single kernel normalises and rotates.
bool turns_too(const Tensor& x, const NormOptions& o, int64_t width) {
  constexpr int64_t kWidest = 4096;
  const RotaryTable& t = o.turn;
  if (!tensor::is_gpu(x.device()) || width % 8 != 0 || width > kWidest || t.cos.rank() != 2 ||
      2 * t.cos.size(1) != width)
    return false;
  for (const Tensor* read : {&x, &o.into, &o.weight, &o.bias, &t.cos, &t.sin})
    if (!in_words(*read)) return false;
  return !o.shift.defined() && !o.scale.defined();
}

Tensor norm(const char* op, const Tensor& x, const NormOptions& o, bool centred) {
  require(x.rank() == 2 && (x.dtype() == DType::f32 || x.dtype() == DType::bf16), ErrorCode::usage,
          "{}: x {} of {}; expected f32 or bf16 [tokens, channels]", op, x.shape(),
          name_of(x.dtype()));
  const int64_t tokens = x.size(0), channels = x.size(1), width = o.width ? o.width : channels;
  require(width > 0 && channels % width == 0, ErrorCode::usage,
          "{}: {} channels cannot be cut into runs of {}", op, channels, width);
  if (o.turn.cos.defined() && !turns_too(x, o, width)) {
    NormOptions alone = o;
    alone.turn = {};
    alone.into = {};
    return rope(norm(op, x, alone, centred), o.turn, width, RotaryPairs::neighbours, o.into);
  }
  check_vector(op, "weight", o.weight, width);
  check_vector(op, "bias", o.bias, width);
  check_rows(op, "shift", o.shift, channels, o, tokens);
  check_rows(op, "scale", o.scale, channels, o, tokens);
  require_beside(op, "weight", o.weight, x.device());
  require_beside(op, "bias", o.bias, x.device());
  require_beside(op, "shift", o.shift, x.device());
  require_beside(op, "scale", o.scale, x.device());
  const Tensor y = result_of(op, o.into, x.shape(), x.dtype(), x.device());
  tensor::count_op(op, 8 * double(x.elements()), 2 * double(x.bytes()), tensor::op_size(x));
  if (o.turn.cos.defined())
    tensor::count_op("rope", 3 * double(x.elements()), 2 * double(o.turn.cos.bytes()),
                     tensor::op_size(x));
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
  if (o.turn.cos.defined()) {
    check_turn(op, o.turn, tokens, x.device());
    a.cos = o.turn.cos.data<float>();
    a.sin = o.turn.sin.data<float>();
  }
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

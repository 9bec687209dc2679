#include "ops/elementwise.h"

#include <cmath>

#include "base/fail.h"
#include "kernels/copy.h"
#include "kernels/elementwise.h"
#include "kernels/table.h"
#include "kernels/waves.h"
#include "tensor/run_watcher.h"
#include "tensor/shape_format.h"

namespace tessera::ops {
namespace {

using kernels::Elementwise;
using kernels::ElementwiseArgs;

void count(const char* op, double flops, const Tensor& x, const Tensor& y) {
  tensor::count_op(op, flops * double(y.elements()), double(x.bytes()) + double(y.bytes()),
                   tensor::op_size(y));
}

// A matrix of rows with a single stride: [rows, columns], or other dense shapes as a single row.
struct Rows {
  int64_t rows, columns, stride;
};
Rows rows_of(const char* op, const Tensor& x) {
  if (x.rank() == 2) return {x.size(0), x.size(1), x.stride(0)};
  require(x.dense(), ErrorCode::usage,
          "{}: a view {} of {} axes; expected a matrix or a dense tensor", op, x.shape(), x.rank());
  const int64_t columns = x.rank() > 0 ? std::max<int64_t>(x.size(-1), 1) : 1;
  return {x.elements() / columns, columns, columns};
}

Tensor apply(const char* name, Elementwise op, double flops, const Tensor& a, const Tensor& b,
             DType dtype, float alpha = 1, float beta = 1) {
  require(tensor::is_float(a.dtype()), ErrorCode::usage, "{}: a tensor of {}; expected floats",
          name, tensor::name_of(a.dtype()));
  require(!b.defined() || (b.shape() == a.shape() && tensor::is_float(b.dtype())), ErrorCode::usage,
          "{}: {} and {} do not fit; expected equal shapes of floats", name, a.shape(), b.shape());
  require_beside(name, "the second", b, a.device());
  Tensor y = Tensor::empty(a.shape(), dtype, a.device());
  count(name, flops, a, y);
  if (a.is_meta() || a.elements() == 0) return y;
  const Rows ra = rows_of(name, a);
  ElementwiseArgs args{.op = op,
                       .a = a.raw(),
                       .a_stride = ra.stride,
                       .a_dtype = a.dtype(),
                       .y = y.raw(),
                       .y_stride = ra.columns,
                       .y_dtype = dtype,
                       .rows = ra.rows,
                       .columns = ra.columns,
                       .alpha = alpha,
                       .beta = beta};
  if (b.defined())
    args.b = b.raw(), args.b_stride = rows_of(name, b).stride, args.b_dtype = b.dtype();
  kernels::table_of(a.device()).elementwise(args);
  return y;
}

Tensor concat(const std::vector<Tensor>& parts, int axis) {
  require(!parts.empty(), ErrorCode::usage, "concat: nothing to put together");
  int64_t total = 0;
  const Tensor& first = parts[0];
  for (const Tensor& p : parts) {
    require(p.rank() == first.rank() && p.dtype() == first.dtype() &&
                p.shape().with(axis, 0) == first.shape().with(axis, 0),
            ErrorCode::usage, "concat: {} of {} beside {} of {}", p.shape(),
            tensor::name_of(p.dtype()), first.shape(), tensor::name_of(first.dtype()));
    require_beside("concat", "a part", p, first.device());
    total += p.size(axis);
  }
  Tensor y = Tensor::empty(first.shape().with(axis, total), first.dtype(), first.device());
  count("concat", 0, y, y);
  if (y.is_meta() || y.elements() == 0) return y;
  int64_t at = 0;
  for (const Tensor& p : parts) {
    tensor::copy_into(y.slice(axis, at, at + p.size(axis)), p);
    at += p.size(axis);
  }
  return y;
}

}  // namespace

Tensor cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  return apply("cast", Elementwise::cast, 0, x, {}, dtype);
}
Tensor add(const Tensor& a, const Tensor& b) {
  return apply("add", Elementwise::add, 1, a, b, a.dtype());
}
Tensor blend(const Tensor& a, float alpha, const Tensor& b, float beta) {
  return apply("blend", Elementwise::blend, 3, a, b, a.dtype(), alpha, beta);
}
Tensor scale(const Tensor& x, float by, float over) {
  return apply("scale", Elementwise::scale, 2, x, {}, x.dtype(), by, over);
}
Tensor multiply(const Tensor& a, const Tensor& b) {
  return apply("multiply", Elementwise::multiply, 1, a, b, a.dtype());
}
Tensor silu(const Tensor& x) { return apply("silu", Elementwise::silu, 8, x, {}, x.dtype()); }
Tensor relu(const Tensor& x) { return apply("relu", Elementwise::relu, 1, x, {}, x.dtype()); }
Tensor gelu_tanh(const Tensor& x) {
  return apply("gelu_tanh", Elementwise::gelu_tanh, 12, x, {}, x.dtype());
}
Tensor swiglu(const Tensor& gate, const Tensor& up) {
  return apply("swiglu", Elementwise::swiglu, 9, gate, up, gate.dtype());
}
Tensor softcap(const Tensor& x, float cap) {
  require(cap > 0, ErrorCode::usage, "softcap: cap {}; expected more than 0", cap);
  return apply("softcap", Elementwise::softcap, 14, x, {}, x.dtype(), cap);
}

Tensor add_gated(const Tensor& x, const Tensor& y, const Tensor& gate, const RowMap& row_of) {
  require(x.rank() == 2 && y.shape() == x.shape(), ErrorCode::usage,
          "add_gated: {} and {}; expected two [tokens, channels]", x.shape(), y.shape());
  require(gate.rank() == 2 && gate.size(1) == x.size(1) && gate.dtype() == DType::f32,
          ErrorCode::usage, "add_gated: gate {} of {}; expected f32 [rows, {}]", gate.shape(),
          tensor::name_of(gate.dtype()), x.size(1));
  row_of.check("add_gated", x.size(0), "gate", gate);
  Tensor out = Tensor::empty(x.shape(), x.dtype(), x.device());
  count("add_gated", 2, x, out);
  if (x.is_meta() || x.elements() == 0) return out;
  require_beside("add_gated", "y", y, x.device());
  require_beside("add_gated", "gate", gate, x.device());
  kernels::table_of(x.device())
      .elementwise({.op = Elementwise::add_gated,
                    .a = x.raw(),
                    .b = y.raw(),
                    .a_stride = x.stride(0),
                    .b_stride = y.stride(0),
                    .a_dtype = x.dtype(),
                    .b_dtype = y.dtype(),
                    .y = out.raw(),
                    .y_stride = out.stride(0),
                    .y_dtype = out.dtype(),
                    .rows = x.size(0),
                    .columns = x.size(1),
                    .gate = gate.data<float>(),
                    .gate_stride = gate.stride(0),
                    .row_of = row_of.data()});
  return out;
}

Tensor add_row(const Tensor& x, const Tensor& row) {
  const int64_t period = row.elements();
  require(tensor::is_float(x.dtype()) && x.dense() && row.dense() && row.dtype() == DType::f32 &&
              period > 0 && x.elements() % period == 0,
          ErrorCode::usage,
          "add_row: x {} of {} and a row {} of {}; expected dense floats and a dense f32 row that "
          "divides them",
          x.shape(), tensor::name_of(x.dtype()), row.shape(), tensor::name_of(row.dtype()));
  require_beside("add_row", "the row", row, x.device());
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  count("add_row", 1, x, y);
  if (x.is_meta() || x.elements() == 0) return y;
  kernels::table_of(x.device())
      .elementwise({.op = Elementwise::add,
                    .a = x.raw(),
                    .b = row.raw(),
                    .a_stride = period,
                    .b_stride = 0,
                    .a_dtype = x.dtype(),
                    .b_dtype = row.dtype(),
                    .y = y.raw(),
                    .y_stride = period,
                    .y_dtype = y.dtype(),
                    .rows = x.elements() / period,
                    .columns = period});
  return y;
}

Tensor multiply_row(const Tensor& x, const Tensor& row) {
  require(x.rank() == 2 && tensor::is_float(x.dtype()) && row.rank() == 1 && row.dense() &&
              row.size(0) == x.size(1) && row.dtype() == DType::f32,
          ErrorCode::usage, "multiply_row: x {} of {} and a row {} of {}; expected f32 [{}]",
          x.shape(), tensor::name_of(x.dtype()), row.shape(), tensor::name_of(row.dtype()),
          x.rank() == 2 ? x.size(1) : 0);
  require_beside("multiply_row", "the row", row, x.device());
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  count("multiply_row", 1, x, y);
  if (x.is_meta() || x.elements() == 0) return y;
  kernels::table_of(x.device())
      .elementwise({.op = Elementwise::multiply,
                    .a = x.raw(),
                    .b = row.raw(),
                    .a_stride = x.stride(0),
                    .b_stride = 0,
                    .a_dtype = x.dtype(),
                    .b_dtype = row.dtype(),
                    .y = y.raw(),
                    .y_stride = y.stride(0),
                    .y_dtype = y.dtype(),
                    .rows = x.size(0),
                    .columns = x.size(1)});
  return y;
}

void move_rows(const Tensor& x, std::span<const int32_t> from, const Tensor& y,
               std::span<const int32_t> to) {
  require(x.rank() == 2 && tensor::is_float(x.dtype()) && y.rank() == 2 &&
              tensor::is_float(y.dtype()) && x.size(1) == y.size(1),
          ErrorCode::usage, "move_rows: {} of {} into {} of {}; expected floats [rows, channels]",
          x.shape(), tensor::name_of(x.dtype()), y.shape(), tensor::name_of(y.dtype()));
  require_beside("move_rows", "y", y, x.device());
  const auto rows = static_cast<int64_t>(std::max(from.size(), to.size()));
  require(from.empty() || to.empty() || from.size() == to.size(), ErrorCode::usage,
          "move_rows: from {} rows to {}", from.size(), to.size());
  tensor::count_op(
      "move_rows", 0,
      double(rows * x.size(1)) * double(tensor::size_of(x.dtype()) + tensor::size_of(y.dtype())),
      {rows, x.size(1), 0, y.dtype()});
  const auto inside = [](std::span<const int32_t> rows_of, int64_t lowest, int64_t count) {
    for (const int32_t i : rows_of)
      require(i >= lowest && i < count, ErrorCode::usage, "move_rows: row {} of {}", i, count);
  };
  inside(from, -1, x.size(0));
  inside(to, 0, y.size(0));
  require((!from.empty() || rows <= x.size(0)) && (!to.empty() || rows <= y.size(0)),
          ErrorCode::usage, "move_rows: {} rows; x has {}, y {}", rows, x.size(0), y.size(0));
  if (x.is_meta() || rows == 0 || x.size(1) == 0) return;
  const Uploaded<int32_t> sources(from, x.device()), targets(to, x.device());
  kernels::table_of(x.device())
      .move_rows({.x = x.raw(),
                  .x_dtype = x.dtype(),
                  .x_stride = x.stride(0),
                  .from = sources.data(),
                  .y = y.raw(),
                  .y_dtype = y.dtype(),
                  .y_stride = y.stride(0),
                  .to = targets.data(),
                  .rows = rows,
                  .columns = x.size(1)});
}

Tensor gather_rows(const Tensor& table, std::span<const int32_t> indices, DType dtype) {
  require(table.rank() == 2, ErrorCode::usage, "gather_rows: a table {}; expected [rows, channels]",
          table.shape());
  for (const int32_t i : indices)
    require(i >= 0, ErrorCode::usage, "gather_rows: row {} of {}", i, table.size(0));
  Tensor y =
      Tensor::empty({static_cast<int64_t>(indices.size()), table.size(1)}, dtype, table.device());
  move_rows(table, indices, y, {});
  return y;
}

Tensor concat_rows(const std::vector<Tensor>& parts) { return concat(parts, 0); }
Tensor concat_columns(const std::vector<Tensor>& parts) {
  require(!parts.empty() && parts[0].rank() == 2, ErrorCode::usage,
          "concat_columns: expected matrices");
  return concat(parts, 1);
}

Tensor timestep_embedding(const Tensor& t, int64_t dim, const TimestepOptions& o) {
  require(t.rank() == 1 && t.dtype() == DType::f32 && dim >= 2, ErrorCode::usage,
          "timestep_embedding: {} of {} in {} channels; expected f32 [rows] and 2 or more",
          t.shape(), tensor::name_of(t.dtype()), dim);
  Tensor y = Tensor::zeros({t.size(0), dim}, DType::f32, t.device());
  count("timestep_embedding", 20, y, y);
  if (t.is_meta() || t.size(0) == 0) return y;
  const int64_t half = dim / 2;
  std::vector<float> frequency(static_cast<size_t>(half));
  for (int64_t i = 0; i < half; ++i)  // published models round this and the angle to f32
    frequency[static_cast<size_t>(i)] = static_cast<float>(std::exp(
        -std::log(double(o.max_period)) * double(i) / (double(half) - double(o.downscale))));
  const Uploaded<float> waves(frequency, t.device());
  kernels::table_of(t.device())
      .waves({.t = t.data<float>(),
              .frequency = waves.data(),
              .rows = t.size(0),
              .half = half,
              .scale = o.scale,
              .sin_first = o.sin_first,
              .y = y.data<float>(),
              .y_stride = dim});
  return y;
}

}  // namespace tessera::ops

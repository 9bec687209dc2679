#include "ops/sampling.h"

#include <cstring>

#include "base/fail.h"
#include "kernels/table.h"
#include "ops/upload.h"
#include "tensor/run_watcher.h"
#include "tensor/scope.h"
#include "tensor/shape_format.h"

namespace tessera::ops {
namespace {

using kernels::FloatRows;
using tensor::DType;

// Input of a step: f32 rows matching x, with `columns` columns, on the device of x.
FloatRows read(const char* op, const char* name, const Tensor& operand, const Tensor& x,
               int64_t columns, bool or_more = false) {
  require(operand.defined(), ErrorCode::usage, "{}: {} is missing", op, name);
  require(operand.rank() == 2 && x.rank() == 2 && operand.dtype() == DType::f32 &&
              operand.size(0) == x.size(0) &&
              (operand.size(1) == columns || (or_more && operand.size(1) > columns)),
          ErrorCode::usage, "{}: {} is {} of {}; expected f32 [{}, {}]{}", op, name,
          operand.shape(), tensor::name_of(operand.dtype()), x.size(0), columns,
          or_more ? " or wider" : "");
  require_beside(op, name, operand, x.device());
  return {operand.data<float>(), operand.stride(0)};
}

// Counts reads and writes of `arrays` arrays like y.
void count(const char* op, double flops, int arrays, const Tensor& y) {
  tensor::count_op(op, flops * double(y.elements()), arrays * double(y.bytes()),
                   tensor::op_size(y));
}

bool nothing_to_do(const Tensor& x) { return x.is_meta() || x.elements() == 0; }

}  // namespace

LinearStepResult linear_step(const Tensor& x, const Tensor& prediction,
                             std::span<const Tensor> earlier, const Tensor& noise,
                             const LinearStepCoefficients& by, bool with_estimate) {
  const char* const op = "linear_step";
  const int64_t columns = x.size(-1);
  kernels::LinearStepArgs args{
      .by = by,
      .x = read(op, "x", x, x, columns),
      .prediction = read(op, "the prediction", prediction, x, columns, true),
      .rows = x.size(0),
      .columns = columns};
  int arrays = 3 + with_estimate;
  for (size_t back = 1; back < by.estimates.size(); ++back) {
    if (by.estimates[back] == 0) continue;
    require(back <= earlier.size(), ErrorCode::usage,
            "{}: {} earlier estimates; this step reads {}", op, earlier.size(), back);
    args.earlier[back - 1] =
        read(op, "an earlier estimate", earlier[earlier.size() - back], x, columns);
    ++arrays;
  }
  if (by.noise != 0) {
    args.noise = read(op, "noise", noise, x, columns);
    ++arrays;
  }
  LinearStepResult result{.next = Tensor::empty(x.shape(), DType::f32, x.device()), .estimate = {}};
  if (with_estimate) result.estimate = Tensor::empty(x.shape(), DType::f32, x.device());
  count(op, 2.0 * arrays + 4, arrays, result.next);
  if (nothing_to_do(x)) return result;
  args.next = result.next.data<float>();
  if (with_estimate) args.estimate = result.estimate.data<float>();
  kernels::table_of(x.device()).linear_step(args);
  return result;
}

Tensor learned_range_step(const Tensor& x, const Tensor& prediction, const Tensor& noise,
                          const LearnedRangeCoefficients& by) {
  const char* const op = "learned_range_step";
  const int64_t columns = x.size(-1);
  kernels::LearnedRangeStepArgs args{
      .by = by,
      .x = read(op, "x", x, x, columns),
      .prediction = read(op, "the prediction (noise and variance)", prediction, x, 2 * columns),
      .noise = noise.defined() ? read(op, "noise", noise, x, columns) : FloatRows{},
      .rows = x.size(0),
      .columns = columns};
  Tensor next = Tensor::empty(x.shape(), DType::f32, x.device());
  count(op, 20, noise.defined() ? 5 : 4, next);
  if (nothing_to_do(x)) return next;
  args.next = next.data<float>();
  kernels::table_of(x.device()).learned_range_step(args);
  return next;
}

Tensor flow_step(const Tensor& x, const Tensor& velocity, float size) {
  const char* const op = "flow_step";
  const int64_t columns = x.size(-1);
  kernels::FlowStepArgs args{.size = size,
                             .x = read(op, "x", x, x, columns),
                             .velocity = read(op, "the velocity", velocity, x, columns, true),
                             .rows = x.size(0),
                             .columns = columns};
  Tensor next = Tensor::empty(x.shape(), DType::f32, x.device());
  count(op, 2, 3, next);
  if (nothing_to_do(x)) return next;
  args.next = next.data<float>();
  kernels::table_of(x.device()).flow_step(args);
  return next;
}

Tensor guide(const Tensor& cond, const Tensor& uncond, float scale, int64_t columns) {
  const char* const op = "guide";
  kernels::GuideArgs args{
      .scale = scale,
      .cond = read(op, "the conditional prediction", cond, cond, cond.size(-1)),
      .uncond = read(op, "the unconditional prediction", uncond, cond, cond.size(-1)),
      .rows = cond.size(0),
      .columns = cond.size(-1),
      .guided = columns};
  require(columns >= 0 && columns <= cond.size(1), ErrorCode::usage, "{}: {} guided columns of {}",
          op, columns, cond.size(1));
  Tensor y = Tensor::empty(cond.shape(), DType::f32, cond.device());
  count(op, 3, 3, y);
  if (nothing_to_do(cond)) return y;
  args.y = y.data<float>();
  kernels::table_of(cond.device()).guide(args);
  return y;
}

std::vector<Peak> peaks(const Tensor& logits, int64_t except) {
  require(logits.rank() == 2 && logits.dtype() == DType::f32, ErrorCode::usage,
          "peaks: logits are {} of {}; expected f32 [rows, n]", logits.shape(),
          tensor::name_of(logits.dtype()));
  std::vector<Peak> y(static_cast<size_t>(logits.size(0)));
  if (logits.is_meta() || y.empty()) return y;
  const auto find = [&](int64_t begin, int64_t end, Peak* into) {
    kernels::table_of(logits.device())
        .peaks({.logits = {logits.row<float>(begin), logits.stride(0)},
                .rows = end - begin,
                .count = logits.size(1),
                .except = except,
                .peaks = into});
  };
  if (tensor::is_gpu(logits.device())) {
    const auto bytes = static_cast<int64_t>(y.size() * sizeof(Peak));
    const Tensor there = Tensor::empty({bytes}, DType::u8, logits.device());
    find(0, logits.size(0), static_cast<Peak*>(there.raw()));
    std::memcpy(y.data(), there.to(tensor::Device::cpu).raw(), static_cast<size_t>(bytes));
  } else {
    tensor::parallel_for(logits.size(0), 1,
                         [&](int64_t begin, int64_t end) { find(begin, end, y.data() + begin); });
  }
  return y;
}

Tensor softmax(const Tensor& logits) {
  const Tensor x = logits.is_meta() ? logits : logits.to(tensor::Device::cpu);
  const std::vector<Peak> largest = peaks(x, -1);
  const Tensor y = Tensor::empty(x.shape(), DType::f32, x.device());
  tensor::count_op("softmax", 8 * double(y.elements()), 2 * double(y.bytes()), tensor::op_size(y));
  if (x.is_meta()) return y;
  const int64_t count = x.size(1);
  tensor::parallel_for(x.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const Peak& peak = largest[static_cast<size_t>(t)];
      const auto share = static_cast<float>(1 / peak.sum);
      const float* from = x.row<float>(t);
      float* to = y.row<float>(t);
      for (int64_t i = 0; i < count; ++i) to[i] = std::exp(from[i] - peak.largest) * share;
    }
  });
  return y;
}

Peak peak(std::span<const float> logits, int64_t except) {
  Peak y;
  kernels::cpu_table().peaks({.logits = {logits.data(), 0},
                              .rows = 1,
                              .count = static_cast<int64_t>(logits.size()),
                              .except = except,
                              .peaks = &y});
  return y;
}

}  // namespace tessera::ops

#include "ops/rope.h"

#include <cmath>

#include "base/fail.h"
#include "kernels/rope.h"
#include "kernels/table.h"
#include "ops/upload.h"
#include "tensor/run_watcher.h"
#include "tensor/shape_format.h"

namespace tessera::ops {

RotaryTable rotary_table(std::span<const int64_t> positions, int64_t pairs, double theta,
                         tensor::Device device, int64_t rotated_pairs) {
  require(pairs >= 1 && theta > 0, ErrorCode::usage,
          "rotary_table: {} pairs, theta {}; expected 1 or more, above 0", pairs, theta);
  const auto tokens = static_cast<int64_t>(positions.size());
  if (device == tensor::Device::meta)
    return {Tensor::empty({tokens, pairs}, DType::f32, device),
            Tensor::empty({tokens, pairs}, DType::f32, device)};
  RotaryTable table{Tensor::empty({tokens, pairs}, DType::f32),
                    Tensor::empty({tokens, pairs}, DType::f32)};
  for (int64_t i = 0; i < pairs; ++i) {
    // Published models round the frequency and the angle to f32.
    const bool still = rotated_pairs >= 0 && i >= rotated_pairs;
    const auto frequency =
        still ? 0.0f : static_cast<float>(std::pow(theta, -double(i) / double(pairs)));
    for (int64_t t = 0; t < tokens; ++t) {
      const float angle = static_cast<float>(positions[static_cast<size_t>(t)]) * frequency;
      table.cos.row<float>(t)[i] = std::cos(angle);
      table.sin.row<float>(t)[i] = std::sin(angle);
    }
  }
  return {table.cos.to(device), table.sin.to(device)};
}

Tensor rope(const Tensor& x, const RotaryTable& table, int64_t head_dim, RotaryPairs pairs,
            const Tensor& into) {
  require(x.rank() == 2 && tensor::is_float(x.dtype()) && head_dim > 0 && x.size(1) % head_dim == 0,
          ErrorCode::usage, "rope: x {} of {}; expected floats [tokens, heads * {}]", x.shape(),
          tensor::name_of(x.dtype()), head_dim);
  const Tensor &cos = table.cos, &sin = table.sin;
  require(cos.defined() && sin.defined() && cos.rank() == 2 && cos.size(0) == x.size(0) &&
              sin.shape() == cos.shape() && cos.dtype() == DType::f32 && cos.dense() &&
              sin.dtype() == DType::f32 && sin.dense() && 2 * cos.size(1) <= head_dim,
          ErrorCode::usage,
          "rope: a table of {} for x {}; expected dense f32 [{}, pairs], at most {} pairs",
          cos.shape(), x.shape(), x.size(0), head_dim / 2);
  require_beside("rope", "the table", cos, x.device());
  const Tensor y = result_of("rope", into, x.shape(), x.dtype(), x.device());
  tensor::count_op("rope", 3 * double(x.elements()),
                   2 * double(x.bytes()) + 2 * double(cos.bytes()), tensor::op_size(x));
  if (x.is_meta() || x.elements() == 0) return y;
  kernels::table_of(x.device())
      .rope({.x = x.raw(),
             .x_stride = x.stride(0),
             .y = y.raw(),
             .y_stride = y.stride(0),
             .dtype = x.dtype(),
             .tokens = x.size(0),
             .heads = x.size(1) / head_dim,
             .head_dim = head_dim,
             .pairs = cos.size(1),
             .cos = cos.data<float>(),
             .sin = sin.data<float>(),
             .interleaved = pairs == RotaryPairs::neighbours});
  return y;
}

}  // namespace tessera::ops

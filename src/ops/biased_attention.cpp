#include "ops/biased_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/fail.h"
#include "kernels/biased_attention.h"
#include "kernels/table.h"
#include "ops/matmul.h"
#include "ops/upload.h"
#include "tensor/scope.h"
#include "tensor/shape_format.h"

namespace tessera::ops {
namespace {

void check(const Tensor& q, const Tensor& k, const Tensor& v, int heads, const Tensor& bias,
           int64_t visible) {
  require(q.rank() == 2 && k.shape() == q.shape() && v.shape() == q.shape() && heads > 0 &&
              q.size(1) % heads == 0,
          ErrorCode::usage,
          "biased_attention: queries {}, keys {}, values {} and {} heads; expected three [tokens, "
          "heads * head_dim]",
          q.shape(), k.shape(), v.shape(), heads);
  const bool one_type = k.dtype() == q.dtype() && v.dtype() == q.dtype();
  require(one_type && (q.dtype() == DType::f32 || q.dtype() == DType::bf16), ErrorCode::usage,
          "biased_attention: {}, {} and {}; expected f32 or bf16 all three",
          tensor::name_of(q.dtype()), tensor::name_of(k.dtype()), tensor::name_of(v.dtype()));
  const int64_t distances = std::max<int64_t>(2 * q.size(0) - 1, 0);
  require(bias.rank() == 2 && bias.size(0) == heads && bias.size(1) == distances &&
              bias.dtype() == DType::f32,
          ErrorCode::usage, "biased_attention: bias {} of {}; expected f32 [{}, {}]", bias.shape(),
          tensor::name_of(bias.dtype()), heads, distances);
  require_beside("biased_attention", "k", k, q.device());
  require_beside("biased_attention", "v", v, q.device());
  require_beside("biased_attention", "bias", bias, q.device());
  require(visible >= 0 && visible <= q.size(0), ErrorCode::usage,
          "biased_attention: {} of {} keys are visible", visible, q.size(0));
}

// Scores of a row -> exponentials; returns their sum.
float exponentials(float* scores, const float* bias, int64_t count) {
  float largest = -INFINITY, sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    scores[i] += bias[i];
    largest = std::max(largest, scores[i]);
  }
  for (int64_t i = 0; i < count; ++i) {
    scores[i] = std::exp(scores[i] - largest);
    sum += scores[i];
  }
  return sum;
}

// [keys, dim] -> f32 [dim, keys].
Tensor turned(const Tensor& x) {
  const int64_t rows = x.size(0), columns = x.size(1);
  const std::vector<float> values = x.to_floats();
  Tensor y = Tensor::empty({columns, rows}, DType::f32);
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = 0; r < rows; ++r)
      y.row<float>(c)[r] = values[static_cast<size_t>(r * columns + c)];
  return y;
}

void attend_head(const Tensor& q, const Tensor& k, const Tensor& v, const float* bias,
                 const Tensor& out) {
  const int64_t tokens = q.size(0), keys = k.size(0);
  const MatmulOptions wide{.out = DType::f32, .out_as_input = false};
  const Tensor scores = matmul(q.contiguous(), pack_weight(k.contiguous(), q.dtype()), wide);
  std::vector<float> sums(static_cast<size_t>(tokens));
  tensor::parallel_for(tokens, 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      sums[static_cast<size_t>(t)] =
          exponentials(scores.row<float>(t), bias + tokens - 1 - t, keys);
  });
  const Tensor mixed = matmul(scores, pack_weight(turned(v), q.dtype()), wide);
  tensor::with_float_type(out.dtype(), [&](auto type) {
    using T = decltype(type);
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t c = 0; c < mixed.size(1); ++c)
        out.row<T>(t)[c] =
            tensor::from_float<T>(mixed.row<float>(t)[c] / sums[static_cast<size_t>(t)]);
  });
}

}  // namespace

Tensor biased_attention(const Tensor& q, const Tensor& k, const Tensor& v, int heads,
                        const Tensor& bias, int64_t visible) {
  check(q, k, v, heads, bias, visible);
  const int64_t tokens = q.size(0), dim = q.size(1) / heads;
  Tensor out = Tensor::zeros(q.shape(), q.dtype(), q.device());
  if (auto* meter = tensor::current_scope().meter.get(); meter && q.is_meta())
    meter->add("biased_attention", 4.0 * double(tokens) * double(visible) * double(q.size(1)),
               4.0 * double(q.bytes()));
  if (q.is_meta() || visible == 0) return out;
  if (q.device() != tensor::Device::cpu) {
    kernels::table_of(q.device())
        .biased_attention({.q = q.raw(),
                           .k = k.raw(),
                           .v = v.raw(),
                           .q_stride = q.stride(0),
                           .k_stride = k.stride(0),
                           .v_stride = v.stride(0),
                           .dtype = q.dtype(),
                           .tokens = tokens,
                           .heads = heads,
                           .head_dim = dim,
                           .visible = visible,
                           .bias = bias.data<float>(),
                           .bias_stride = bias.stride(0),
                           .out = out.raw(),
                           .out_stride = out.stride(0)});
    return out;
  }
  for (int64_t h = 0; h < heads; ++h) {
    const auto head = [&](const Tensor& x) { return x.slice(1, h * dim, (h + 1) * dim); };
    attend_head(head(q), head(k).slice(0, 0, visible), head(v).slice(0, 0, visible),
                bias.row<float>(h), head(out));
  }
  return out;
}

}  // namespace tessera::ops

#include "ops/biased_attention.h"

#include <algorithm>

#include "base/fail.h"
#include "kernels/biased_attention.h"
#include "kernels/table.h"
#include "ops/upload.h"
#include "tensor/run_watcher.h"
#include "tensor/shape_format.h"

namespace tessera::ops {
namespace {

using tensor::DType;

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

}  // namespace

Tensor biased_attention(const Tensor& q, const Tensor& k, const Tensor& v, int heads,
                        const Tensor& bias, int64_t visible) {
  check(q, k, v, heads, bias, visible);
  const int64_t tokens = q.size(0), dim = q.size(1) / heads;
  Tensor out = Tensor::zeros(q.shape(), q.dtype(), q.device());
  if (q.is_meta())
    tensor::count_op("biased_attention", 4.0 * double(tokens) * double(visible) * double(q.size(1)),
                     4.0 * double(q.bytes()), {tokens, q.size(1), dim, q.dtype()});
  if (q.is_meta() || visible == 0) return out;
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

}  // namespace tessera::ops

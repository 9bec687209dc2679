#include "kernels/biased_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/copy.h"
#include "kernels/matmul.h"
#include "kernels/packed_weight.h"
#include "kernels/table.h"
#include "tensor/scope.h"

namespace tessera::kernels::simd {
namespace {

using tensor::DType;
using tensor::Tensor;

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

// A view [rows, columns] as a dense tensor; turned: [columns, rows].
Tensor dense(const void* x, int64_t stride, int64_t rows, int64_t columns, DType dtype,
             bool turned) {
  const Tensor y =
      turned ? Tensor::empty({columns, rows}, dtype) : Tensor::empty({rows, columns}, dtype);
  copy({.x = x,
        .y = y.raw(),
        .element = tensor::size_of(dtype),
        .axes = 2,
        .size = {y.size(0), y.size(1)},
        .x_stride = {turned ? 1 : stride, turned ? stride : 1},
        .y_stride = {y.size(1), 1}});
  return y;
}

// x * w^T in f32.
Tensor product(const Tensor& x, const Tensor& w, DType dtype) {
  const PackedWeight packed = pack_weight(w, {}, dtype, active_isa());
  const Tensor y = Tensor::empty({x.size(0), w.size(0)}, DType::f32);
  cpu_table().matmul({.x = x.raw(),
                      .x_dtype = x.dtype(),
                      .x_stride = x.stride(0),
                      .rows = x.size(0),
                      .weight = &packed,
                      .epilogue = {},
                      .y = y.raw(),
                      .y_dtype = DType::f32,
                      .y_stride = y.stride(0)});
  return y;
}

void attend_head(const BiasedAttentionArgs& a, int64_t head) {
  const int64_t first = head * a.head_dim * tensor::size_of(a.dtype), tokens = a.tokens;
  const auto at = [&](const void* x) { return static_cast<const std::byte*>(x) + first; };
  const Tensor q = dense(at(a.q), a.q_stride, tokens, a.head_dim, a.dtype, false),
               k = dense(at(a.k), a.k_stride, a.visible, a.head_dim, a.dtype, false),
               v = dense(at(a.v), a.v_stride, a.visible, a.head_dim, a.dtype, true);
  const Tensor scores = product(q, k, a.dtype);
  const float* bias = a.bias + head * a.bias_stride;
  std::vector<float> sums(static_cast<size_t>(tokens));
  tensor::parallel_for(tokens, 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      sums[static_cast<size_t>(t)] =
          exponentials(scores.row<float>(t), bias + tokens - 1 - t, a.visible);
  });
  const Tensor mixed = product(scores, v, a.dtype);
  tensor::with_float_type(a.dtype, [&](auto type) {
    using T = decltype(type);
    for (int64_t t = 0; t < tokens; ++t) {
      T* out = static_cast<T*>(a.out) + t * a.out_stride + head * a.head_dim;
      for (int64_t c = 0; c < a.head_dim; ++c)
        out[c] = tensor::from_float<T>(mixed.row<float>(t)[c] / sums[static_cast<size_t>(t)]);
    }
  });
}

}  // namespace

void biased_attention(const BiasedAttentionArgs& args) {
  for (int64_t head = 0; head < args.heads; ++head) attend_head(args, head);
}

}  // namespace tessera::kernels::simd

#pragma once

#include <cmath>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/random_values.h"
#include "kernels/where.h"

namespace tessera::kernels {

using tensor::DType;
using tensor::Tensor;

/// A product with an epilogue.
struct MatmulProblem {
  int64_t rows, n, k;
  DType x, w, y;
  Activation activation;
  bool bias, gate, residual, in_place;
  int64_t gap = 3;  // elements between rows of x
};

/// What a kernel makes of it, its arrays at a place.
inline Tensor run(const Where& at, void (*kernel)(const MatmulArgs&), const MatmulProblem& p) {
  const bool paired = p.activation == Activation::swiglu;
  const float scale = 1 / std::sqrt(static_cast<float>(p.k));
  const PackedWeight w = at(pack_weight(
      random_tensor({p.n, p.k}, DType::f32, 1, scale),
      paired ? random_tensor({p.n, p.k}, DType::f32, 2, scale) : Tensor{}, p.w, Isa::reference));
  const Tensor x = at(random_tensor({p.rows, p.k + p.gap}, p.x, 3));
  const Tensor bias = at(random_tensor({p.n}, DType::f32, 4));
  const Tensor gate = at(random_tensor({2, p.n}, DType::f32, 5));
  const Tensor y = at(random_tensor({p.rows, p.n}, p.y, 6));
  const Tensor residual = p.in_place ? y : at(random_tensor({p.rows, p.n}, p.x, 7));
  std::vector<int32_t> row_of;
  for (int64_t t = 0; t < p.rows; ++t) row_of.push_back(static_cast<int32_t>(t % 2));
  const Tensor gate_rows = at(row_of);
  Epilogue e{.activation = p.activation};
  if (p.bias && !paired) e.bias = bias.data<float>();
  if (p.gate) {
    e.gate = gate.data<float>();
    e.gate_stride = p.n;
    e.row_of = static_cast<const int32_t*>(gate_rows.raw());
  }
  if (p.residual) {
    e.residual = residual.raw();
    e.residual_dtype = residual.dtype();
    e.residual_stride = p.n;
  }
  kernel({.x = x.raw(),
          .x_dtype = p.x,
          .x_stride = p.k + p.gap,
          .rows = p.rows,
          .weight = &w,
          .epilogue = e,
          .y = y.raw(),
          .y_dtype = p.y,
          .y_stride = p.n});
  return here(y);
}

}  // namespace tessera::kernels

#pragma once

#include <cmath>
#include <list>
#include <span>
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
  int64_t gap = 3;   // elements between rows of x
  int64_t rank = 0;  // rank of PackedWeight::low; 0: none
};

/// The arrays of a problem at a place.
struct PlacedProblem {
  PlacedProblem(const Where& at, const MatmulProblem& p);
  PackedWeight w;
  Tensor x, low, bias, gate, y, residual, gate_rows;
  MatmulArgs args;
};

inline PlacedProblem::PlacedProblem(const Where& at, const MatmulProblem& p) {
  const bool paired = is_paired(p.activation);
  const float scale = 1 / std::sqrt(static_cast<float>(p.k));
  w = at(pack_weight(random_tensor({p.n, p.k}, DType::f32, 1, scale),
                     paired ? random_tensor({p.n, p.k}, DType::f32, 2, scale) : Tensor{}, p.w,
                     Isa::reference));
  if (p.rank > 0) {
    low = at(random_tensor({p.rows, p.rank}, DType::f32, 8));
    w.low = std::make_shared<const LowRank>(LowRank{
        at(pack_weight(random_tensor({p.rank, p.k}, DType::f32, 9), {}, p.w, Isa::reference)),
        at(pack_weight(random_tensor({p.n, p.rank}, DType::f32, 10),
                       paired ? random_tensor({p.n, p.rank}, DType::f32, 11) : Tensor{}, DType::f32,
                       Isa::reference))});
  }
  x = at(random_tensor({p.rows, p.k + p.gap}, p.x, 3));
  bias = at(random_tensor({p.n}, DType::f32, 4));
  gate = at(random_tensor({2, p.n}, DType::f32, 5));
  y = at(random_tensor({p.rows, p.n}, p.y, 6));
  residual = p.in_place ? y : at(random_tensor({p.rows, p.n}, p.x, 7));
  std::vector<int32_t> row_of;
  for (int64_t t = 0; t < p.rows; ++t) row_of.push_back(static_cast<int32_t>(t % 2));
  gate_rows = at(row_of);
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
  args = {.x = x.raw(),
          .x_dtype = p.x,
          .x_stride = p.k + p.gap,
          .rows = p.rows,
          .weight = &w,
          .epilogue = e,
          .low = low.defined() ? low.data<float>() : nullptr,
          .y = y.raw(),
          .y_dtype = p.y,
          .y_stride = p.n};
}

/// A kernel's result.
inline Tensor run(const Where& at, void (*kernel)(const MatmulArgs&), const MatmulProblem& p) {
  const PlacedProblem placed(at, p);
  kernel(placed.args);
  return here(placed.y);
}

/// A kernel's results for several products together.
inline std::vector<Tensor> run_group(const Where& at, void (*kernel)(std::span<const MatmulArgs>),
                                     std::span<const MatmulProblem> problems) {
  std::list<PlacedProblem> placed;  // owners of the weights in the arguments
  std::vector<MatmulArgs> all;
  for (const MatmulProblem& p : problems) all.push_back(placed.emplace_back(at, p).args);
  kernel(all);
  std::vector<Tensor> results;
  for (const PlacedProblem& p : placed) results.push_back(here(p.y));
  return results;
}

}  // namespace tessera::kernels

#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace tessera::nn {

/// A change of a matrix W [n, k], f32 on the host, with strength and scale multiplied in: W + up
/// down + dense. A magnitude makes a DoRA (Liu et al. 2024): rows, or columns, of W + up down are
/// scaled to these norms, and W moves towards the result by `blend`.
struct WeightChange {
  tensor::Tensor down, up;                ///< [rank, k], [n, rank]
  std::function<tensor::Tensor()> dense;  ///< makes [n, k]; null: none
  tensor::Tensor magnitude;
  bool by_columns = false;
  float blend = 1;
};

/// Changes of a part of a model by the names of matrices, in the order of the request.
using WeightChanges = std::map<std::string, std::vector<WeightChange>>;

/// Whether all changes are pairs, and so need no elements of the matrix.
bool are_pairs(const std::vector<WeightChange>& changes);
/// All pairs as one: [sum of ranks, k] and [n, sum of ranks].
WeightChange joined_pairs(const std::vector<WeightChange>& changes);
/// The changed matrix, f32 [n, k], computed in f64 from W in any float dtype on the host; on meta
/// the shape.
tensor::Tensor changed(const tensor::Tensor& matrix, const std::vector<WeightChange>& changes);

}  // namespace tessera::nn

#pragma once

#include <vector>

#include "tensor/tensor.h"

namespace tessera::parallel {

/// A tensor of each computed step, extrapolated by its differences (TaylorSeer, Liu et al. 2025,
/// section 3.2): F = sum over k of d^k / k! * F_k, where F_0 is the last value, F_{k+1} the change
/// of F_k a step, and d the number of steps since.
class Taylor {
 public:
  /// `order`: the highest k. Before step `first`, values make no differences.
  explicit Taylor(int order, int first = 0) : order_(order), first_(first) {}
  bool defined() const { return !factors_.empty(); }
  /// The value of a computed step, later than the last.
  void update(const tensor::Tensor& value, int step);
  tensor::Tensor at(int step) const;

 private:
  int order_, first_, last_ = 0;
  std::vector<tensor::Tensor> factors_;  // F_0, F_1, ...
};

}  // namespace tessera::parallel

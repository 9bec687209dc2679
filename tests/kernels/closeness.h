#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tensor/tensor.h"

namespace tessera::kernels {

/// The largest difference, relative to 1 + |right|; infinite where there is a NaN.
inline double worst_difference(const tensor::Tensor& got, const tensor::Tensor& right) {
  const std::vector<float> x = got.to_floats(), y = right.to_floats();
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i]) continue;
    const double d = std::abs(double{x[i]} - y[i]) / (1 + std::abs(double{y[i]}));
    worst = d <= worst ? worst : std::isnan(d) ? std::numeric_limits<double>::infinity() : d;
  }
  return worst;
}

/// L2 norm of the difference, relative to the norm of the right values.
inline double relative_l2(const tensor::Tensor& a, const tensor::Tensor& b) {
  const std::vector<float> x = a.to_floats(), y = b.to_floats();
  double error = 0, size = 1e-30;
  for (size_t i = 0; i < x.size(); ++i) {
    error += (double{x[i]} - y[i]) * (double{x[i]} - y[i]);
    size += double{y[i]} * y[i];
  }
  return std::sqrt(error / size);
}

inline bool same_bits(const tensor::Tensor& a, const tensor::Tensor& b) {
  return a.bytes() == b.bytes() &&
         std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0;
}

/// The difference that rounding to `dtype` may add.
inline double tolerance(tensor::DType dtype, double f32 = 1e-5) {
  return dtype == tensor::DType::f32 ? f32 : dtype == tensor::DType::bf16 ? 8e-3 : 1e-3;
}

}  // namespace tessera::kernels

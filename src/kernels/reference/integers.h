#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <type_traits>

#include "kernels/packed_weight.h"
#include "tensor/tensor.h"

// Integer weights and rows, for the reference kernels.
namespace tessera::kernels::reference {

/// An element of a weight as a float; int8 without its scale.
template <class T>
float value_of(T element) {
  if constexpr (std::is_same_v<T, int8_t>)
    return element;
  else
    return tensor::to_float(element);
}

/// Calls f with a value of the weight's element type: int8 or a float.
template <class F>
void with_weight_type(tensor::DType dtype, F f) {
  if (dtype == tensor::DType::i8)
    f(int8_t{});
  else
    tensor::with_float_type(dtype, f);
}

/// Quantises a row in place (see kInt8Largest) and returns the scale.
inline double quantise_row(std::span<float> x) {
  float largest = 0, nan_sum = 0;
  for (const float value : x) {
    largest = std::max(largest, std::fabs(value));
    nan_sum += value * 0;  // NaN stays NaN
  }
  largest += nan_sum;
  const float inverse = largest > kInt8Least ? kInt8Largest / largest : 0;
  for (float& value : x) value = nan_sum == 0 ? nearest_whole(value * inverse) : 0;
  return double{largest / kInt8Largest};
}

}  // namespace tessera::kernels::reference

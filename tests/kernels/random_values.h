#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "tensor/tensor.h"

namespace tessera::kernels {

/// Normal values, rounded to `dtype`, as a tensor; the same for the same seed.
inline tensor::Tensor random_tensor(const tensor::Shape& shape, tensor::DType dtype, uint32_t seed,
                                    float scale = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, scale);
  tensor::Tensor t = tensor::Tensor::empty(shape, dtype);
  tensor::with_float_type(dtype, [&](auto type) {
    using T = decltype(type);
    for (int64_t i = 0; i < t.elements(); ++i)
      t.data<T>()[i] = tensor::from_float<T>(normal(generator));
  });
  return t;
}

}  // namespace tessera::kernels

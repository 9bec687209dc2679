#pragma once

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "kernels/random_values.h"

namespace tessera::kernels {

/// Calls f(x, finite) with finite arrays, and with arrays with a single NaN or infinity.
template <class F>
void each_odd_array(const F& f) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const tensor::DType dtype : {tensor::DType::f32, tensor::DType::bf16, tensor::DType::f16})
    for (const int64_t count : {1, 7, 16, 301, 5000}) {
      std::vector<float> values(static_cast<size_t>(count), -65504);  // the largest of f16
      const auto made = [&] {
        const tensor::Tensor x = tensor::Tensor::empty({count}, dtype);
        tensor::with_float_type(dtype, [&](auto type) {
          for (size_t i = 0; i < values.size(); ++i)
            x.data<decltype(type)>()[i] = tensor::from_float<decltype(type)>(values[i]);
        });
        return x;
      };
      SCOPED_TRACE(std::to_string(count) + " of " + tensor::name_of(dtype));
      f(made(), true);
      for (const float odd : {inf, -inf, std::numeric_limits<float>::quiet_NaN()})
        for (const int64_t at : {int64_t{0}, count / 2, count - 1}) {
          values[static_cast<size_t>(at)] = odd;
          f(made(), false);
          values[static_cast<size_t>(at)] = 1;
        }
    }
}

}  // namespace tessera::kernels

#pragma once

#include <cmath>

#include "kernels/matmul.h"

namespace tessera::kernels::reference {

/// Activation of a sum; paired activations multiply by `up`.
inline double activate(Activation activation, double x, double up = 0) {
  switch (activation) {
    case Activation::none: return x;
    case Activation::silu: return x / (1 + std::exp(-x));
    case Activation::swiglu:
    case Activation::geglu: return activate(gate_function(activation), x) * up;
    case Activation::gelu_erf: return 0.5 * x * (1 + std::erf(x * std::sqrt(0.5)));
    case Activation::quick_gelu: return x / (1 + std::exp(-1.702 * x));
    case Activation::relu: return x < 0 ? 0 : x;
    case Activation::gelu_tanh: {
      const double u = 0.79788456080286535588 * (x + 0.044715 * x * x * x);
      return 0.5 * x * (1 + std::tanh(u));
    }
  }
  return x;
}

}  // namespace tessera::kernels::reference

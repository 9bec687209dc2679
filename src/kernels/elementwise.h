#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tessera::kernels {

enum class Elementwise : uint8_t {
  cast,       ///< a
  add,        ///< a + b
  blend,      ///< a * alpha + b * beta
  multiply,   ///< a * b
  scale,      ///< a / beta * alpha
  silu,       ///< a / (1 + exp(-a))
  relu,       ///< max(a, 0); NaN stays
  gelu_tanh,  ///< tanh form
  swiglu,     ///< silu(a) * b
  softcap,    ///< alpha * tanh(a / alpha)
  add_gated,  ///< a + gate[row_of[t], :] * b
};

/// y[t, :] = op(a[t, :], b[t, :]); strides in elements; arithmetic in f32.
struct ElementwiseArgs {
  Elementwise op = Elementwise::cast;
  const void *a = nullptr, *b = nullptr;
  int64_t a_stride = 0, b_stride = 0;
  tensor::DType a_dtype = tensor::DType::f32, b_dtype = tensor::DType::f32;
  void* y = nullptr;
  int64_t y_stride = 0;
  tensor::DType y_dtype = tensor::DType::f32;
  int64_t rows = 0, columns = 0;
  float alpha = 1, beta = 1;
  const float* gate = nullptr;
  int64_t gate_stride = 0;
  const int32_t* row_of = nullptr;  ///< null: row 0
};

namespace reference {
/// Plain loops: the definition of correct results.
void elementwise(const ElementwiseArgs& args);
}  // namespace reference
namespace avx2 {
/// Processes sixteen elements at a time.
void elementwise(const ElementwiseArgs& args);
}  // namespace avx2
namespace avx512 {
/// Same in wider vectors.
void elementwise(const ElementwiseArgs& args);
}  // namespace avx512
namespace cuda {
/// Each thread processes eight elements if strides and addresses allow 16-byte accesses, else a
/// single element.
void elementwise(const ElementwiseArgs& args);
}  // namespace cuda

}  // namespace tessera::kernels

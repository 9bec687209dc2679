#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/matmul.h"

namespace tessera::kernels::cuda {

__device__ inline float activate(Activation activation, float x, float up) {
  switch (activation) {
    case Activation::none: return x;
    case Activation::silu: return silu(x);
    case Activation::gelu_tanh: return gelu_tanh(x);
    case Activation::gelu_erf: return gelu_erf(x);
    case Activation::relu: return x < 0 ? 0 : x;
    case Activation::swiglu: return silu(x) * up;
  }
  return x;
}

/// What follows the sums of a product, where the library cannot do it: f32 [rows, n], paired
/// [rows, 2n].
struct Finish {
  const float* sums;  ///< null where a kernel has them in registers
  int64_t sums_stride, rows, n;
  Epilogue epilogue;
  void* y;
  DType y_dtype;
  int64_t y_stride;
};

/// Stores columns [c, c + V) of row t from their sums; `up` is read with swiglu alone.
template <int V>
__device__ inline void finish_chunk(const Finish& f, int64_t t, int64_t c, float (&v)[V],
                                    const float (&up)[V]) {
  const Epilogue& e = f.epilogue;
  float other[V] = {};
  if (e.bias) {
    load<V>(e.bias, DType::f32, c, other);
    TESSERA_UNROLL
    for (int j = 0; j < V; ++j) v[j] += other[j];
  }
  TESSERA_UNROLL
  for (int j = 0; j < V; ++j) v[j] = activate(e.activation, v[j], up[j]);
  if (e.gate) {
    load<V>(e.gate, DType::f32, (e.row_of ? e.row_of[t] : 0) * e.gate_stride + c, other);
    TESSERA_UNROLL
    for (int j = 0; j < V; ++j) v[j] *= other[j];
  }
  if (e.residual) {
    load<V>(e.residual, e.residual_dtype, t * e.residual_stride + c, other);
    TESSERA_UNROLL
    for (int j = 0; j < V; ++j) v[j] += other[j];
  }
  store<V>(f.y, f.y_dtype, t * f.y_stride + c, v);
}

/// Whether eight columns at a time can be read and written in 16-byte words.
inline bool all_in_words(const Finish& f) {
  const Epilogue& e = f.epilogue;
  return f.n % 8 == 0 && in_words(f.y, f.y_dtype, f.y_stride) &&
         (!e.bias || in_words(e.bias, DType::f32, 0)) &&
         (!e.gate || in_words(e.gate, DType::f32, e.gate_stride)) &&
         (!e.residual || in_words(e.residual, e.residual_dtype, e.residual_stride));
}

}  // namespace tessera::kernels::cuda

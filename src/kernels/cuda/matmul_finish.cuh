#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/finish.h"
#include "kernels/matmul.h"

namespace tessera::kernels::cuda {

/// x / (1 + 2^-exponent) in few instructions, because an epilogue is unrolled for every sum of a
/// tile.
__device__ inline float gated_by_itself(float x, float exponent) {
  return x * reciprocal_of(1 + exp2_of(-exponent));
}

/// x Phi(x), with erfc as in Abramowitz and Stegun, 7.1.26: within 1.5e-7 |x|.
__device__ inline float fast_gelu_erf(float x) {
  const float z = fabsf(x) * 0.7071067811865476f, t = reciprocal_of(fmaf(0.3275911f, z, 1));
  float tail = fmaf(1.061405429f, t, -1.453152027f);
  tail = fmaf(tail, t, 1.421413741f);
  tail = fmaf(tail, t, -0.284496736f);
  tail = 0.5f * t * fmaf(tail, t, 0.254829592f) * exp2_of(-1.4426950408889634f * z * z);
  return x * (x < 0 ? tail : 1 - tail);
}

template <Activation Kind>
__device__ inline float activate(float x, float up) {
  constexpr float kLog2E = 1.4426950408889634f;
  if constexpr (Kind == Activation::silu) return gated_by_itself(x, kLog2E * x);
  if constexpr (is_paired(Kind)) return activate<gate_function(Kind)>(x, 0) * up;
  if constexpr (Kind == Activation::gelu_tanh)  // 1 + tanh(u) = 2 / (1 + e^-2u)
    return gated_by_itself(x, 2 * kLog2E * 0.7978845608028654f * x * fmaf(0.044715f * x, x, 1));
  if constexpr (Kind == Activation::gelu_erf) return fast_gelu_erf(x);
  if constexpr (Kind == Activation::quick_gelu) return gated_by_itself(x, 1.702f * kLog2E * x);
  if constexpr (Kind == Activation::relu) return x < 0 ? 0 : x;
  return x;
}

/// An epilogue on V columns of a row: + bias, activation, * factor if `gated`, + before if `adds`.
template <Activation Kind, int V>
__device__ inline void finish_values(float (&v)[V], const float (&up)[V], const float (&bias)[V],
                                     bool gated, const float (&factor)[V], bool adds,
                                     const float (&before)[V]) {
  TESSERA_UNROLL
  for (int j = 0; j < V; ++j) v[j] = activate<Kind>(v[j] + bias[j], up[j]);
  if (gated) TESSERA_UNROLL
  for (int j = 0; j < V; ++j) v[j] *= factor[j];
  if (adds) TESSERA_UNROLL
  for (int j = 0; j < V; ++j) v[j] += before[j];
}

/// Stores columns [c, c + V) of row t from their sums; `up` is read with paired weights alone.
template <Activation Kind, int V>
__device__ inline void finish_chunk(const Finish& f, int64_t t, int64_t c, float (&v)[V],
                                    const float (&up)[V]) {
  const Epilogue& e = f.epilogue;
  float bias[V] = {}, factor[V] = {}, before[V] = {};
  if (e.bias) load<V>(e.bias, DType::f32, c, bias);
  if (e.gate) load<V>(e.gate, DType::f32, (e.row_of ? e.row_of[t] : 0) * e.gate_stride + c, factor);
  if (e.residual) load<V>(e.residual, e.residual_dtype, t * e.residual_stride + c, before);
  finish_values<Kind>(v, up, bias, e.gate != nullptr, factor, e.residual != nullptr, before);
  store<V>(f.y, f.y_dtype, t * f.y_stride + c, v);
}

/// True if f16 is read or written.
inline bool has_half(const Finish& f) {
  return f.y_dtype == DType::f16 ||
         (f.epilogue.residual && f.epilogue.residual_dtype == DType::f16);
}

/// True if eight columns at a time can be read and written in 16-byte words.
inline bool all_in_words(const Finish& f) {
  const Epilogue& e = f.epilogue;
  return f.n % 8 == 0 && in_words(f.y, f.y_dtype, f.y_stride) &&
         (!e.bias || in_words(e.bias, DType::f32, 0)) &&
         (!e.gate || in_words(e.gate, DType::f32, e.gate_stride)) &&
         (!e.residual || in_words(e.residual, e.residual_dtype, e.residual_stride));
}

}  // namespace tessera::kernels::cuda

#pragma once

#include <bit>
#include <cstdint>

#include "tensor/dtype.h"

// Plain loops that the compiler turns into the vectors of the CPU: AVX2 with FMA on x86 (behind a
// check of the instruction set), what the target has elsewhere. Include every header before these.
// UNFUSED: where each product is to be rounded before it is added to, as in the reference.
#if defined(__x86_64__) && defined(__clang__)
#define TESSERA_SIMD_BEGIN \
  _Pragma("clang attribute push(__attribute__((target(\"avx2,fma\"))), apply_to = function)")
#define TESSERA_SIMD_UNFUSED_BEGIN \
  _Pragma("clang attribute push(__attribute__((target(\"avx2\"))), apply_to = function)")
#define TESSERA_SIMD_END _Pragma("clang attribute pop")
#elif defined(__x86_64__)
#define TESSERA_SIMD_BEGIN _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,fma\")")
#define TESSERA_SIMD_UNFUSED_BEGIN _Pragma("GCC push_options") _Pragma("GCC target(\"avx2\")")
#define TESSERA_SIMD_END _Pragma("GCC pop_options")
#else
#define TESSERA_SIMD_BEGIN
#define TESSERA_SIMD_UNFUSED_BEGIN
#define TESSERA_SIMD_END
#endif

/// Before a loop that writes nothing which it reads.
#ifdef __clang__
#define TESSERA_IVDEP  // clang knows no such mark; it compares addresses when the loop begins
#else
#define TESSERA_IVDEP _Pragma("GCC ivdep")
#endif

TESSERA_SIMD_BEGIN
namespace tessera::kernels::simd {

/// exp(x) to 3e-7, x cut to where the result is a normal number: 2^n by exponent bits, the rest by
/// a minimax polynomial. No branch, so that loops over it become vectors.
inline float exp(float x) {
  x = x < -87.3f ? -87.3f : x;
  x = x > 88.0f ? 88.0f : x;
  const float y = x * 1.44269504f;
  const float n = (y + 12582912.0f) - 12582912.0f;  // to the nearest whole number
  const float f = y - n;                            // |f| <= 1/2
  float p = 1.3333558e-3f;
  p = p * f + 9.6181291e-3f;
  p = p * f + 5.5504109e-2f;
  p = p * f + 2.4022651e-1f;
  p = p * f + 6.9314718e-1f;
  p = p * f + 1.0f;
  return p * std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
}

/// x / (1 + exp(-x))
inline float silu(float x) { return x / (1 + exp(-x)); }
/// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
inline float gelu_tanh(float x) { return x / (1 + exp(-1.5957691f * (x + 0.044715f * x * x * x))); }
/// 0.5 x (1 + erf(x / sqrt 2)); erf by Abramowitz and Stegun 7.1.26, to 2e-7.
inline float gelu_erf(float x) {
  const float z = (x < 0 ? -x : x) * 0.70710678f, t = 1 / (1 + 0.3275911f * z);
  float p = 1.061405429f;
  p = p * t - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  const float tail = p * t * exp(-z * z);  // 1 - erf z
  return 0.5f * x * (x < 0 ? tail : 2 - tail);
}

/// An element of memory as f32.
inline float widen(float x) { return x; }
inline float widen(tensor::BFloat16 x) { return tensor::to_float(x); }
inline float widen(tensor::Float16 x) { return tensor::to_float(x); }
/// f32 as an element of memory, to nearest even; without a branch for bf16.
inline void narrow(float x, float* out) { *out = x; }
inline void narrow(float x, tensor::BFloat16* out) {
  const uint32_t u = std::bit_cast<uint32_t>(x), rounded = u + 0x7fffu + (u >> 16 & 1u);
  const uint32_t nan = u | 0x400000u;
  out->bits = static_cast<uint16_t>((x == x ? rounded : nan) >> 16);
}
inline void narrow(float x, tensor::Float16* out) { *out = tensor::to_float16(x); }

}  // namespace tessera::kernels::simd
TESSERA_SIMD_END

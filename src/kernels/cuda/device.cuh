#pragma once

// Definitions for kernels. nvcc provides the language itself; a test that runs a kernel on the CPU
// includes an emulation before the kernel's source.
#if defined(__CUDACC__)
#include "kernels/cuda/instructions.cuh"
#elif !defined(TESSERA_EMULATED_DEVICE)
#error "compile with nvcc, or include an emulation of the device first"
#endif

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "tensor/dtype.h"

namespace tessera::kernels::cuda {

using tensor::BFloat16;
using tensor::DType;
using tensor::Float16;

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

template <class T>
constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(BFloat16 x) { return __uint_as_float(uint32_t{x.bits} << 16); }
__device__ inline float widen(Float16 x) { return half_bits_to_float(x.bits); }

template <class T>
__device__ inline T narrow(float x);
template <>
__device__ inline float narrow<float>(float x) {
  return x;
}
template <>
__device__ inline BFloat16 narrow<BFloat16>(float x) {
  return {float_to_bf16_bits(x)};
}
template <>
__device__ inline Float16 narrow<Float16>(float x) {
  return {float_to_half_bits(x)};
}

// Eight 16-bit elements of a 16-byte word.
template <class T>
__device__ inline void widen_word(uint4 word, float (&v)[8]) {
  const uint32_t words[4] = {word.x, word.y, word.z, word.w};
  TESSERA_UNROLL
  for (int i = 0; i < 8; ++i)
    v[i] = widen(T{static_cast<uint16_t>(words[i / 2] >> (16 * (i % 2)))});
}
template <class T>
__device__ inline uint4 narrow_word(const float (&v)[8]) {
  uint32_t words[4];
  TESSERA_UNROLL
  for (int i = 0; i < 4; ++i)
    if constexpr (std::is_same_v<T, BFloat16>)
      words[i] = pack_bf16(v[2 * i], v[2 * i + 1]);
    else
      words[i] = narrow<T>(v[2 * i]).bits | uint32_t{narrow<T>(v[2 * i + 1]).bits} << 16;
  return {words[0], words[1], words[2], words[3]};
}

/// V elements of `data` from place `at` on, widened; V is 8 (16-byte accesses) or 1.
template <int V>
__device__ inline void load(const void* data, DType dtype, int64_t at, float (&v)[V]) {
  static_assert(V == 8 || V == 1);
  if constexpr (V == 1) {
    if (dtype == DType::f32)
      v[0] = static_cast<const float*>(data)[at];
    else if (dtype == DType::bf16)
      v[0] = widen(static_cast<const BFloat16*>(data)[at]);
    else
      v[0] = widen(static_cast<const Float16*>(data)[at]);
  } else if (dtype == DType::f32) {
    const auto* words = reinterpret_cast<const float4*>(static_cast<const float*>(data) + at);
    const float4 low = words[0], high = words[1];
    v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
    v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
  } else {
    const uint4 word = *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(data) + at);
    if (dtype == DType::bf16)
      widen_word<BFloat16>(word, v);
    else
      widen_word<Float16>(word, v);
  }
}

/// Rounds V elements to `dtype` and stores them from place `at` on.
template <int V>
__device__ inline void store(void* data, DType dtype, int64_t at, const float (&v)[V]) {
  static_assert(V == 8 || V == 1);
  if constexpr (V == 1) {
    if (dtype == DType::f32)
      static_cast<float*>(data)[at] = v[0];
    else if (dtype == DType::bf16)
      static_cast<BFloat16*>(data)[at] = narrow<BFloat16>(v[0]);
    else
      static_cast<Float16*>(data)[at] = narrow<Float16>(v[0]);
  } else if (dtype == DType::f32) {
    auto* words = reinterpret_cast<float4*>(static_cast<float*>(data) + at);
    words[0] = {v[0], v[1], v[2], v[3]};
    words[1] = {v[4], v[5], v[6], v[7]};
  } else {
    auto* word = reinterpret_cast<uint4*>(static_cast<uint16_t*>(data) + at);
    *word = dtype == DType::bf16 ? narrow_word<BFloat16>(v) : narrow_word<Float16>(v);
  }
}

/// True if rows of `stride` elements from `data` on can be read 16 bytes at a time.
inline bool in_words(const void* data, DType dtype, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride * size_of(dtype) % 16 == 0;
}

__device__ inline float silu(float x) { return x / (1 + expf(-x)); }
__device__ inline float gelu_tanh(float x) {
  return 0.5f * x * (1 + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)));
}

/// Sum over `lanes` neighbouring lanes (a power of two), in all of them; lanes are paired in a
/// fixed order.
__device__ inline float sum_over_lanes(float x, int lanes) {
  for (int step = lanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

}  // namespace tessera::kernels::cuda

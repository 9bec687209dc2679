#include "kernels/rope.h"

#include <bit>
#include <cstring>

#include "kernels/simd/vectorised.h"
#include "tensor/scope.h"

// Without fused multiply-adds: both products are rounded, and each bit is that of the reference.
TESSERA_SIMD_UNFUSED_BEGIN
namespace tessera::kernels::simd {
namespace {

using tensor::BFloat16;

uint32_t bf16_bits(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x), rounded = u + 0x7fffu + (u >> 16 & 1u);
  return (x == x ? rounded : u | 0x400000u) >> 16;
}
float value_of(float x) { return x; }
float value_of(BFloat16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }
void round_to(float x, float* out) { *out = x; }
void round_to(float x, BFloat16* out) { out->bits = static_cast<uint16_t>(bf16_bits(x)); }

// Pairs (i, i + pairs) of a head.
template <class T>
void halves(const T* x, const float* cos, const float* sin, int64_t pairs, T* y) {
  TESSERA_IVDEP
  for (int64_t i = 0; i < pairs; ++i) {
    const float first = value_of(x[i]), second = value_of(x[i + pairs]);
    round_to(first * cos[i] - second * sin[i], y + i);
    round_to(second * cos[i] + first * sin[i], y + i + pairs);
  }
}

void neighbours(const float* x, const float* cos, const float* sin, int64_t pairs, float* y) {
  TESSERA_IVDEP
  for (int64_t i = 0; i < pairs; ++i) {
    const float first = x[2 * i], second = x[2 * i + 1];
    y[2 * i] = first * cos[i] - second * sin[i];
    y[2 * i + 1] = second * cos[i] + first * sin[i];
  }
}

// A pair is the halves of a word.
void neighbours(const BFloat16* x, const float* cos, const float* sin, int64_t pairs, BFloat16* y) {
  const auto* from = reinterpret_cast<const std::byte*>(x);
  auto* to = reinterpret_cast<std::byte*>(y);
  TESSERA_IVDEP
  for (int64_t i = 0; i < pairs; ++i) {
    uint32_t word;
    std::memcpy(&word, from + 4 * i, 4);
    const float first = std::bit_cast<float>(word << 16),
                second = std::bit_cast<float>(word & 0xffff0000u);
    word = bf16_bits(first * cos[i] - second * sin[i]) | bf16_bits(second * cos[i] + first * sin[i])
                                                             << 16;
    std::memcpy(to + 4 * i, &word, 4);
  }
}

template <class T>
void tokens(const RopeArgs& a, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t)
    for (int64_t h = 0; h < a.heads; ++h) {
      const T* const x = static_cast<const T*>(a.x) + t * a.x_stride + h * a.head_dim;
      T* const y = static_cast<T*>(a.y) + t * a.y_stride + h * a.head_dim;
      const float *const cos = a.cos + t * a.pairs, *const sin = a.sin + t * a.pairs;
      a.interleaved ? neighbours(x, cos, sin, a.pairs, y) : halves(x, cos, sin, a.pairs, y);
      for (int64_t i = 2 * a.pairs; i < a.head_dim; ++i) y[i] = x[i];
    }
}

}  // namespace

void rope(const RopeArgs& a) {
  if (a.dtype == tensor::DType::f16) return reference::rope(a);
  tensor::parallel_for(a.tokens, 16, [&](int64_t begin, int64_t end) {
    a.dtype == tensor::DType::bf16 ? tokens<BFloat16>(a, begin, end) : tokens<float>(a, begin, end);
  });
}

}  // namespace tessera::kernels::simd
TESSERA_SIMD_END

#include "kernels/norm.h"

#include <array>
#include <cmath>

#include "kernels/simd/vectorised.h"
#include "tensor/scope.h"
#include "tensor/tensor.h"

TESSERA_SIMD_BEGIN
namespace tessera::kernels::simd {
namespace {

// Sum of f(i), sixteen partial sums wide; the order is a function of n alone.
template <class F>
float sum(int64_t n, F f) {
  constexpr int64_t kWide = 16;
  std::array<float, kWide> part{};
  int64_t i = 0;
  for (; i + kWide <= n; i += kWide)
    for (int64_t j = 0; j < kWide; ++j) part[static_cast<size_t>(j)] += f(i + j);
  for (int64_t j = 0; i < n; ++i, ++j) part[static_cast<size_t>(j)] += f(i);
  float total = 0;
  for (float p : part) total += p;
  return total;
}

template <class T>
void one_group(const NormArgs& a, int64_t token, int64_t group) {
  const int64_t width = a.width, from = group * width;
  const T* x = static_cast<const T*>(a.x) + token * a.x_stride + from;
  T* y = static_cast<T*>(a.y) + token * a.y_stride + from;
  const auto n = static_cast<float>(width);
  const float mean = a.centred ? sum(width, [&](int64_t i) { return widen(x[i]); }) / n : 0;
  const float squares = sum(width, [&](int64_t i) {
    const float d = widen(x[i]) - mean;
    return d * d;
  });
  const float factor = 1 / std::sqrt(squares / n + a.eps);
  const int64_t row = a.row_of ? a.row_of[token] : 0;
  const float* weight = a.weight;
  const float* bias = a.bias;
  const float* scale = a.scale ? a.scale + row * a.scale_stride + from : nullptr;
  const float* shift = a.shift ? a.shift + row * a.shift_stride + from : nullptr;
  constexpr int64_t kRun = 64;  // one buffer, so that each step is a plain loop
  std::array<float, kRun> v;
  for (int64_t at = 0; at < width; at += kRun) {
    const int64_t count = width - at < kRun ? width - at : kRun;
    for (int64_t i = 0; i < count; ++i)
      v[static_cast<size_t>(i)] = (widen(x[at + i]) - mean) * factor;
    if (weight)
      for (int64_t i = 0; i < count; ++i) v[static_cast<size_t>(i)] *= weight[at + i];
    if (bias)
      for (int64_t i = 0; i < count; ++i) v[static_cast<size_t>(i)] += bias[at + i];
    if (scale)
      for (int64_t i = 0; i < count; ++i) v[static_cast<size_t>(i)] *= 1 + scale[at + i];
    if (shift)
      for (int64_t i = 0; i < count; ++i) v[static_cast<size_t>(i)] += shift[at + i];
    for (int64_t i = 0; i < count; ++i) narrow(v[static_cast<size_t>(i)], y + at + i);
  }
}

}  // namespace

void norm(const NormArgs& a) {
  const int64_t grain = 1 + 16384 / (a.groups * a.width);
  tensor::parallel_for(a.tokens, grain, [&](int64_t begin, int64_t end) {
    tensor::with_float_type(a.dtype, [&](auto kind) {
      for (int64_t t = begin; t < end; ++t)
        for (int64_t g = 0; g < a.groups; ++g) one_group<decltype(kind)>(a, t, g);
    });
  });
}

}  // namespace tessera::kernels::simd
TESSERA_SIMD_END

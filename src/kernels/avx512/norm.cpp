#include "kernels/norm.h"

#if defined(__x86_64__)
#include <cmath>

#include "kernels/avx512/vector.h"
#include "tensor/scope.h"

TESSERA_AVX512_BEGIN
namespace tessera::kernels::avx512 {
namespace {

constexpr __mmask16 kWhole = 0xffff;

template <DType dtype>
__m512 get(const void* x, int64_t at, __mmask16 keep) {
  return load(x, dtype, at, keep);
}

// Sum of f over the run, four accumulators wide; the order is a function of the width alone.
template <class F>
float sum(int64_t width, F f) {
  __m512 s[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(),
                 _mm512_setzero_ps()};
  int64_t i = 0;
  for (; i + 64 <= width; i += 64)
    for (int j = 0; j < 4; ++j) s[j] = f(s[j], i + 16 * j, kWhole);
  for (int j = 0; i < width; i += 16, ++j) s[j] = f(s[j], i, lanes(width - i));
  return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(s[0], s[1]), _mm512_add_ps(s[2], s[3])));
}

template <DType dtype, bool centred>
void one_group(const NormArgs& a, const void* x, void* y, int64_t from, int64_t row) {
  float mean = 0;
  if (centred)
    mean = sum(a.width,
               [&](__m512 s, int64_t i, __mmask16 keep) {
                 return _mm512_add_ps(s, get<dtype>(x, from + i, keep));
               }) /
           static_cast<float>(a.width);
  const __m512 centre = _mm512_set1_ps(mean);
  const float squares = sum(a.width, [&](__m512 s, int64_t i, __mmask16 keep) {
    const __m512 v = get<dtype>(x, from + i, keep);
    const __m512 d = centred ? _mm512_maskz_sub_ps(keep, v, centre) : v;
    return _mm512_fmadd_ps(d, d, s);
  });
  const __m512 factor =
      _mm512_set1_ps(1 / std::sqrt(squares / static_cast<float>(a.width) + a.eps));
  // The next run of channels comes from memory while this one is written.
  constexpr int64_t kLine = 64 / size_of(dtype);
  const auto* const next = static_cast<const char*>(x) + (from + a.width) * size_of(dtype);
  const float* const scale = a.scale ? a.scale + row * a.scale_stride + from : nullptr;
  const float* const shift = a.shift ? a.shift + row * a.shift_stride + from : nullptr;
  const auto sixteen = [&](int64_t i, __mmask16 keep) __attribute__((always_inline)) {
    if (i % kLine == 0) _mm_prefetch(next + i * size_of(dtype), _MM_HINT_T0);
    __m512 v = get<dtype>(x, from + i, keep);
    if (centred) v = _mm512_sub_ps(v, centre);
    v = _mm512_mul_ps(v, factor);
    if (a.weight) v = _mm512_mul_ps(v, _mm512_maskz_loadu_ps(keep, a.weight + i));
    if (a.bias) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(keep, a.bias + i));
    if (scale) v = _mm512_fmadd_ps(v, _mm512_maskz_loadu_ps(keep, scale + i), v);
    if (shift) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(keep, shift + i));
    store(y, dtype, from + i, keep, v);
  };
  int64_t i = 0;  // whole vectors without a mask: see rows() of elementwise
  for (; i + 16 <= a.width; i += 16) sixteen(i, kWhole);
  if (i < a.width) sixteen(i, lanes(a.width - i));
}

template <DType dtype, bool centred>
void tokens(const NormArgs& a, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const auto* x = static_cast<const std::byte*>(a.x) + t * a.x_stride * size_of(dtype);
    auto* y = static_cast<std::byte*>(a.y) + t * a.y_stride * size_of(dtype);
    const int64_t row = a.row_of ? a.row_of[t] : 0;
    for (int64_t g = 0; g < a.groups; ++g) one_group<dtype, centred>(a, x, y, g * a.width, row);
  }
}

template <DType dtype>
void run(const NormArgs& a) {
  const int64_t grain = 1 + 16384 / (a.groups * a.width);
  tensor::parallel_for(a.tokens, grain, [&](int64_t begin, int64_t end) {
    a.centred ? tokens<dtype, true>(a, begin, end) : tokens<dtype, false>(a, begin, end);
  });
}

}  // namespace

void norm(const NormArgs& args) {
  switch (args.dtype) {
    case DType::bf16: return run<DType::bf16>(args);
    case DType::f16: return run<DType::f16>(args);
    default: return run<DType::f32>(args);
  }
}

}  // namespace tessera::kernels::avx512
TESSERA_AVX512_END
#endif  // __x86_64__

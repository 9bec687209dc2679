#include "kernels/plane_affine.h"

#if defined(__x86_64__)
#include "kernels/avx512/exact.h"
#include "kernels/glibc_exp.h"
#include "tensor/scope.h"

TESSERA_AVX512_BEGIN
namespace tessera::kernels::avx512 {
namespace {

using namespace glibc_exp;

__m512d all(double v) { return _mm512_set1_pd(v); }
__m512i eight_roots(int from) { return _mm512_load_si512(kRoots + from); }

__m512i roots_of(__m512i whole) {
  const __m512i low = _mm512_permutex2var_epi64(eight_roots(0), whole, eight_roots(8)),
                high = _mm512_permutex2var_epi64(eight_roots(16), whole, eight_roots(24));
  return _mm512_mask_mov_epi64(low, _mm512_test_epi64_mask(whole, _mm512_set1_epi64(16)), high);
}

// exp(x) as glibc computes it.
__m256 exp(__m256 x) {
  // The second operand is the result where one is no number.
  const __m512d wide =
      _mm512_max_pd(all(-kFarthest), _mm512_min_pd(all(kFarthest), _mm512_cvtps_pd(x)));
  const __m512d shifted = _mm512_fmadd_pd(all(kToRoots), wide, all(kShift));
  const __m512i whole = _mm512_castpd_si512(shifted);
  const __m512d r = _mm512_fmsub_pd(all(kToRoots), wide, _mm512_sub_pd(shifted, all(kShift)));
  const __m512d root =
      _mm512_castsi512_pd(_mm512_add_epi64(roots_of(whole), _mm512_slli_epi64(whole, 47)));
  const __m512d z = _mm512_fmadd_pd(all(kCubic), r, all(kSquare));
  const __m512d y =
      _mm512_fmadd_pd(z, _mm512_mul_pd(r, r), _mm512_fmadd_pd(all(kLinear), r, all(1)));
  return _mm512_cvtpd_ps(_mm512_mul_pd(y, root));
}

__m512 exact_silu(__m512 v) {
  const __m512 minus =
      _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(v), _mm512_set1_epi32(INT32_MIN)));
  const __m256 low = exp(_mm512_castps512_ps256(minus)),
               high = exp(_mm512_extractf32x8_ps(minus, 1));
  const __m512 e = _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
  return _mm512_div_ps(v, _mm512_add_ps(_mm512_set1_ps(1), e));
}

void one_pixel(const PlaneAffineArgs& a, int64_t here, const float* gain, const float* bias) {
  const auto sixteen = [&](int64_t c, __mmask16 keep) __attribute__((always_inline)) {
    const auto at = [&](const float* from) { return _mm512_maskz_loadu_ps(keep, from + c); };
    const __m512 x = load(a.x, a.dtype, here + c, keep);
    const __m512 affine =
        _mm512_add_ps(times(x, at(a.scale_shift)), at(a.scale_shift + a.channels));
    const __m512 v = _mm512_add_ps(times(affine, at(gain)), at(bias));
    store_exact(a.y, a.dtype, here + c, keep, exact_silu(v));
  };
  int64_t c = 0;  // whole vectors without a mask: see rows() of elementwise
  for (; c + 16 <= a.channels; c += 16) sixteen(c, 0xffff);
  if (c < a.channels) sixteen(c, lanes(a.channels - c));
}

void one_line(const PlaneAffineArgs& a, int64_t line) {
  const int64_t t = line / a.size.height, row = line % a.size.height;
  const int64_t from = nearest_frame(t, a.size.frames, a.field.frames) * a.field.height +
                       row * a.field.height / a.size.height;
  for (int64_t column = 0; column < a.size.width; ++column) {
    const int64_t there =
        (from * a.field.width + column * a.field.width / a.size.width) * a.channels;
    one_pixel(a, (line * a.size.width + column) * a.channels, a.gain + there, a.bias + there);
  }
}

}  // namespace

void plane_affine(const PlaneAffineArgs& args) {
  if (args.dtype == DType::f16) return simd::plane_affine(args);
  tensor::parallel_for(args.size.frames * args.size.height, 4, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) one_line(args, line);
  });
}

}  // namespace tessera::kernels::avx512
TESSERA_AVX512_END
#endif  // __x86_64__

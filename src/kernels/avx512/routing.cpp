#include "kernels/routing.h"

#if defined(__x86_64__)
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "kernels/avx512/vector.h"
#include "kernels/selection.h"

TESSERA_AVX512_BEGIN
namespace tessera::kernels::avx512 {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

// exp(x); 0 below -708, clamped to exp(708) above.
__m512d exponential(__m512d x) {
  // 1 / i!, i = 13 .. 0
  static constexpr double kTerms[] = {1.0 / 6227020800,
                                      1.0 / 479001600,
                                      1.0 / 39916800,
                                      1.0 / 3628800,
                                      1.0 / 362880,
                                      1.0 / 40320,
                                      1.0 / 5040,
                                      1.0 / 720,
                                      1.0 / 120,
                                      1.0 / 24,
                                      1.0 / 6,
                                      0.5,
                                      1,
                                      1};
  const __mmask8 alive = _mm512_cmp_pd_mask(x, _mm512_set1_pd(-708), _CMP_NLT_UQ);
  x = _mm512_min_pd(_mm512_set1_pd(708), x);  // NaN stays
  const __m512d n = _mm512_roundscale_pd(_mm512_mul_pd(x, _mm512_set1_pd(1.4426950408889634)), 8);
  __m512d r = _mm512_fnmadd_pd(n, _mm512_set1_pd(0.693147180369123816490), x);
  r = _mm512_fnmadd_pd(n, _mm512_set1_pd(1.90821492927058770002e-10), r);
  __m512d sum = _mm512_set1_pd(kTerms[0]);
#pragma GCC unroll 13
  for (int i = 1; i < 14; ++i) sum = _mm512_fmadd_pd(sum, r, _mm512_set1_pd(kTerms[i]));
  return _mm512_maskz_scalef_pd(alive, sum, n);
}

// by_sixteens() for doubles.
template <class F>
TESSERA_INLINE void by_eights(int64_t count, const F& f) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) f(i, static_cast<__mmask8>(0xff));
  if (i < count) f(i, static_cast<__mmask8>(lanes(count - i)));
}

// Broadcasts the largest lane.
__m512 in_all_lanes(__m512 v) {
  v = _mm512_max_ps(v, _mm512_shuffle_f32x4(v, v, 0x4e));
  v = _mm512_max_ps(v, _mm512_shuffle_f32x4(v, v, 0xb1));
  v = _mm512_max_ps(v, _mm512_permute_ps(v, 0x4e));
  return _mm512_max_ps(v, _mm512_permute_ps(v, 0xb1));
}

// Rank of each lane: the number of larger lanes, plus equal lanes before.
__m512i places(__m512 v) {
  __m512i place = _mm512_setzero_si512();
  const auto beside = [&]<int R>(std::integral_constant<int, R>) __attribute__((always_inline)) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512 other = _mm512_castsi512_ps(_mm512_alignr_epi32(bits, bits, R));
    constexpr auto behind = static_cast<__mmask16>((1 << (16 - R)) - 1);
    const __mmask16 beats =
        _mm512_mask_cmp_ps_mask(behind, other, v, _CMP_GT_OQ) |
        _mm512_mask_cmp_ps_mask(static_cast<__mmask16>(~behind), other, v, _CMP_GE_OQ);
    place = _mm512_mask_add_epi32(place, beats, place, _mm512_set1_epi32(1));
  };
  [&]<int... R>(std::integer_sequence<int, R...>) __attribute__((always_inline)) {
    (beside(std::integral_constant<int, R + 1>()), ...);
  }
  (std::make_integer_sequence<int, 15>());
  return place;
}

// The k largest are at least the k-th largest of 16 maxima. Usually at most 16 values reach this
// bound; returns false otherwise.
template <int V>
TESSERA_INLINE bool pick(const __m512 (&v)[V], const TopKArgs& args) {
  if (args.k > 16) return false;
  __m512 most = v[0];
#pragma GCC unroll 16
  for (int i = 1; i < V; ++i) most = _mm512_max_ps(most, v[i]);
  const __mmask16 last = _mm512_cmpeq_epi32_mask(places(most), _mm512_set1_epi32(args.k - 1));
  const __m512 least =
      _mm512_permutexvar_ps(_mm512_set1_epi32(std::countr_zero(unsigned{last})), most);
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  alignas(64) float values[16 * V + 16];
  alignas(64) int32_t ids[16 * V + 16];
  int count = 0;
#pragma GCC unroll 16
  for (int i = 0; i < V; ++i) {
    const __mmask16 large = _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(v[i], least, _CMP_GE_OQ),
                                                    v[i], _mm512_set1_ps(kNone), _CMP_GT_OQ);
    _mm512_storeu_ps(values + count, _mm512_maskz_compress_ps(large, v[i]));
    _mm512_storeu_si512(ids + count, _mm512_maskz_compress_epi32(
                                         large, _mm512_add_epi32(lane, _mm512_set1_epi32(16 * i))));
    count += std::popcount(unsigned{large});
  }
  if (count > 16) return false;
  const __m512 few = _mm512_mask_loadu_ps(_mm512_set1_ps(kNone), lanes(count), values);
  alignas(64) int32_t place[16];
  _mm512_store_si512(place, places(few));
  for (int i = 0; i < count; ++i)
    if (place[i] < args.k) args.ids[place[i]] = ids[i];
  for (int j = count; j < args.k; ++j) args.ids[j] = -1;
  return true;
}

// Keeps V vectors of ranks in registers for all k searches.
template <int V>
void search(const TopKArgs& args) {
  const __m512 none = _mm512_set1_ps(kNone);
  __m512 v[V];
#pragma GCC unroll 16
  for (int i = 0; i < V; ++i) {
    const __mmask16 keep = lanes(args.n - 16 * i);
    v[i] = _mm512_mask_loadu_ps(none, keep, args.rank + 16 * i);
    if (args.closed)
      v[i] =
          _mm512_mask_add_ps(v[i], keep, v[i], _mm512_maskz_loadu_ps(keep, args.closed + 16 * i));
    v[i] = _mm512_mask_mov_ps(none, _mm512_cmp_ps_mask(v[i], v[i], _CMP_ORD_Q), v[i]);
  }
  if (args.k > 2 && pick(v, args)) return;
  for (int j = 0; j < args.k; ++j) {
    __m512 most = v[0];
#pragma GCC unroll 16
    for (int i = 1; i < V; ++i) most = _mm512_max_ps(most, v[i]);
    most = in_all_lanes(most);
    if (!_mm512_cmp_ps_mask(most, none, _CMP_GT_OQ)) {
      args.ids[j] = -1;
      continue;
    }
    __mmask16 equal[V];
    uint64_t words[(V + 3) / 4] = {};
#pragma GCC unroll 16
    for (int i = 0; i < V; ++i) {
      equal[i] = _mm512_cmp_ps_mask(v[i], most, _CMP_EQ_OQ);
      words[i / 4] |= uint64_t{equal[i]} << (16 * (i % 4));
    }
    int at = 0, count = 0;
#pragma GCC unroll 4
    for (int w = (V + 3) / 4 - 1; w >= 0; --w) {
      at = words[w] ? 64 * w + std::countr_zero(words[w]) : at;
      count += std::popcount(words[w]);
    }
    args.ids[j] = at;
#pragma GCC unroll 16
    for (int i = 0; i < V; ++i) {
      if (count > 1)  // a tie: take the lowest lane only
        equal[i] = static_cast<__mmask16>(at / 16 == i ? 1 << (at % 16) : 0);
      v[i] = _mm512_mask_mov_ps(v[i], equal[i], none);
    }
  }
}

}  // namespace

void router_scores(const RouterScoresArgs& args) {
  const __m512d one = _mm512_set1_pd(1);
  __m512 most = _mm512_set1_ps(kNone);
  if (!args.sigmoid)
    by_sixteens(
        args.experts, [&](int64_t e, Keep keep) __attribute__((always_inline)) {
          most = _mm512_mask_max_ps(most, keep, most, load(args.logits + e, keep));
        });
  const __m512d top = _mm512_set1_pd(args.sigmoid ? 0 : double{_mm512_reduce_max_ps(most)});
  __m512d sums = _mm512_setzero_pd();
  by_eights(
      args.experts, [&](int64_t e, __mmask8 keep) __attribute__((always_inline)) {
        const __m512d x = _mm512_cvtps_pd(_mm256_maskz_loadu_ps(keep, args.logits + e));
        __m512d y = exponential(args.sigmoid ? _mm512_sub_pd(_mm512_setzero_pd(), x)
                                             : _mm512_sub_pd(x, top));
        if (args.sigmoid) {
          y = _mm512_div_pd(one, _mm512_add_pd(one, y));
          _mm256_mask_storeu_ps(args.score + e, keep, _mm512_cvtpd_ps(y));
        }
        _mm512_mask_storeu_pd(args.exact + e, keep, y);
        sums = _mm512_mask_add_pd(sums, keep, sums, y);
      });
  if (args.sigmoid) return;
  const __m512d inverse = _mm512_set1_pd(1 / _mm512_reduce_add_pd(sums));
  by_eights(
      args.experts, [&](int64_t e, __mmask8 keep) __attribute__((always_inline)) {
        const __m512d y = _mm512_mul_pd(_mm512_maskz_loadu_pd(keep, args.exact + e), inverse);
        _mm512_mask_storeu_pd(args.exact + e, keep, y);
        _mm256_mask_storeu_ps(args.score + e, keep, _mm512_cvtpd_ps(y));
      });
}

void top_k(const TopKArgs& args) {
  if (args.n <= 16) return search<1>(args);
  if (args.n <= 32) return search<2>(args);
  if (args.n <= 64) return search<4>(args);
  if (args.n <= 128) return search<8>(args);
  if (args.n <= 256) return search<16>(args);
  reference::top_k(args);
}

void route(const RouteArgs& args) { route_tokens(args, {router_scores, top_k}); }
void expert_votes(const VotesArgs& args) { kernels::expert_votes(args, {router_scores, top_k}); }
void choose_inside(const InsideArgs& args) { kernels::choose_inside(args, {router_scores, top_k}); }

}  // namespace tessera::kernels::avx512
TESSERA_AVX512_END
#endif  // __x86_64__

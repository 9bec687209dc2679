#include "kernels/group_norm.h"

#if defined(__x86_64__)
#include <algorithm>
#include <vector>

#include "kernels/avx512/vector.h"
#include "tensor/scope.h"
#include "tensor/tensor.h"

namespace tessera::kernels::avx512 {
namespace {

TESSERA_AVX512_BEGIN

// Sums around the first pixel of the row, so that a mean far from zero costs no digits.
void sum_run(const ChannelMomentsArgs& args, const std::byte* row, int64_t first, int64_t last,
             float* sum, float* squares) {
  for (int64_t c = 0; c < args.channels; c += 16) {
    const __mmask16 keep = lanes(args.channels - c);
    const __m512 center = load(row, args.dtype, c, keep);
    __m512 s = _mm512_setzero_ps(), q = _mm512_setzero_ps();
    for (int64_t p = first; p < last; ++p) {
      const __m512 v = _mm512_sub_ps(load(row, args.dtype, p * args.channels + c, keep), center);
      s = _mm512_add_ps(s, v);
      q = _mm512_fmadd_ps(v, v, q);
    }
    _mm512_mask_storeu_ps(sum + c, keep, s);
    _mm512_mask_storeu_ps(squares + c, keep, q);
  }
}

void affine_pixel(const ChannelAffineArgs& args, const void* x, int64_t from, const float* scale,
                  int64_t to) {
  for (int64_t c = 0; c < args.channels; c += 16) {
    const __mmask16 keep = lanes(args.channels - c);
    __m512 v =
        _mm512_fmadd_ps(load(x, args.dtype, from + c, keep), _mm512_maskz_loadu_ps(keep, scale + c),
                        _mm512_maskz_loadu_ps(keep, scale + args.channels + c));
    if (args.silu) v = silu(v);
    store(args.y, args.dtype, to + c, keep, v);
  }
}

TESSERA_AVX512_END

// sums [runs][2][channels] in order -> moments [2, channels] of a row.
void merge_runs(const ChannelMomentsArgs& args, const std::byte* row, const float* sums,
                int64_t runs, float* moments) {
  const int64_t channels = args.channels;
  const double pixels = static_cast<double>(args.pixels);
  std::vector<double> total(static_cast<size_t>(2 * channels));
  for (int64_t r = 0; r < runs; ++r, sums += 2 * channels)
    for (int64_t i = 0; i < 2 * channels; ++i) total[static_cast<size_t>(i)] += double{sums[i]};
  tensor::with_float_type(args.dtype, [&](auto type) {
    const auto* center = reinterpret_cast<const decltype(type)*>(row);
    for (int64_t c = 0; c < channels; ++c) {
      const double shift = total[static_cast<size_t>(c)] / pixels;
      const double variance = total[static_cast<size_t>(channels + c)] / pixels - shift * shift;
      moments[c] = static_cast<float>(double{tensor::to_float(center[c])} + shift);
      moments[channels + c] = static_cast<float>(std::max(variance, 0.0));
    }
  });
}

}  // namespace

void channel_moments(const ChannelMomentsArgs& args) {
  const int64_t runs = (args.pixels + kMomentRun - 1) / kMomentRun, channels = args.channels;
  std::vector<float> sums(static_cast<size_t>(args.rows * runs * channels * 2));
  auto row_of = [&](int64_t row) {
    return static_cast<const std::byte*>(args.x) + row * args.x_stride * size_of(args.dtype);
  };
  tensor::parallel_for(args.rows * runs, 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % runs * kMomentRun, last = std::min(first + kMomentRun, args.pixels);
      float* into = sums.data() + i * channels * 2;
      sum_run(args, row_of(i / runs), first, last, into, into + channels);
    }
  });
  for (int64_t row = 0; row < args.rows; ++row)
    merge_runs(args, row_of(row), sums.data() + row * runs * channels * 2, runs,
               args.moments + row * 2 * channels);
}

void channel_affine(const ChannelAffineArgs& args) {
  tensor::parallel_for(args.rows * args.pixels, 64, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t row = i / args.pixels, pixel = i % args.pixels;
      affine_pixel(args, args.x, row * args.x_stride + pixel * args.channels,
                   args.scale_shift + row * 2 * args.channels, i * args.channels);
    }
  });
}

}  // namespace tessera::kernels::avx512
#endif  // __x86_64__

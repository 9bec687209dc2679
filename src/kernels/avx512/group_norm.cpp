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

constexpr __mmask16 kWhole = 0xffff;  // without a mask: see rows() of elementwise

// Sums around the first pixel of the row, so that a mean far from zero costs no digits; of n runs
// of sixteen channels at once, which do not wait for each other's sums.
template <int n>
void sum_channels(const ChannelMomentsArgs& args, const std::byte* row, int64_t first, int64_t last,
                  int64_t from, __mmask16 keep, float* sum, float* squares) {
  __m512 center[n], s[n], q[n];
  for (int j = 0; j < n; ++j) {
    center[j] = load(row, args.dtype, from + 16 * j, keep);
    s[j] = q[j] = _mm512_setzero_ps();
  }
  for (int64_t p = first; p < last; ++p)
    for (int j = 0; j < n; ++j) {
      const int64_t at = p * args.channels + from + 16 * j;
      const __m512 v = _mm512_sub_ps(load(row, args.dtype, at, keep), center[j]);
      s[j] = _mm512_add_ps(s[j], v);
      q[j] = _mm512_fmadd_ps(v, v, q[j]);
    }
  for (int j = 0; j < n; ++j) {
    _mm512_mask_storeu_ps(sum + from + 16 * j, keep, s[j]);
    _mm512_mask_storeu_ps(squares + from + 16 * j, keep, q[j]);
  }
}

void sum_run(const ChannelMomentsArgs& args, const std::byte* row, int64_t first, int64_t last,
             float* sum, float* squares) {
  int64_t c = 0;
  for (; c + 64 <= args.channels; c += 64)
    sum_channels<4>(args, row, first, last, c, kWhole, sum, squares);
  for (; c < args.channels; c += 16)
    sum_channels<1>(args, row, first, last, c, lanes(args.channels - c), sum, squares);
}

void affine_pixel(const ChannelAffineArgs& args, const void* x, int64_t from, const float* scale,
                  int64_t to) {
  const auto sixteen = [&](int64_t c, __mmask16 keep) __attribute__((always_inline)) {
    __m512 v =
        _mm512_fmadd_ps(load(x, args.dtype, from + c, keep), _mm512_maskz_loadu_ps(keep, scale + c),
                        _mm512_maskz_loadu_ps(keep, scale + args.channels + c));
    if (args.silu) v = silu(v);
    store(args.y, args.dtype, to + c, keep, v);
  };
  int64_t c = 0;
  for (; c + 16 <= args.channels; c += 16) sixteen(c, kWhole);
  if (c < args.channels) sixteen(c, lanes(args.channels - c));
}

TESSERA_AVX512_END

}  // namespace

void channel_moments(const ChannelMomentsArgs& args) {
  const int64_t runs = args.runs(), channels = args.channels;
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
  merge_moment_runs(args, sums.data());
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

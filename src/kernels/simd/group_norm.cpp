#include "kernels/group_norm.h"

#include <algorithm>
#include <vector>

#include "kernels/simd/vectorised.h"
#include "tensor/scope.h"
#include "tensor/tensor.h"

TESSERA_SIMD_BEGIN
namespace tessera::kernels::simd {
namespace {

template <class T>
void affine_pixel(const T* x, const float* scale, const float* shift, int64_t channels, bool act,
                  T* y) {
  TESSERA_IVDEP
  for (int64_t c = 0; c < channels; ++c) {
    const float v = widen(x[c]) * scale[c] + shift[c];
    narrow(act ? silu(v) : v, y + c);
  }
}

// Sums of a run of pixels around the first pixel of the row, channel by channel.
template <class T>
void sum_run(const T* row, int64_t channels, int64_t first, int64_t last, float* sum,
             float* squares) {
  std::fill_n(sum, channels, 0.0f);
  std::fill_n(squares, channels, 0.0f);
  for (int64_t p = first; p < last; ++p) {
    const T* x = row + p * channels;
    TESSERA_IVDEP
    for (int64_t c = 0; c < channels; ++c) {
      const float v = widen(x[c]) - widen(row[c]);
      sum[c] += v;
      squares[c] += v * v;
    }
  }
}

}  // namespace

void channel_moments(const ChannelMomentsArgs& a) {
  const int64_t runs = a.runs();
  std::vector<float> sums(static_cast<size_t>(a.rows * runs * a.channels * 2));
  tensor::with_float_type(a.dtype, [&](auto type) {
    const auto* x = static_cast<const decltype(type)*>(a.x);
    tensor::parallel_for(a.rows * runs, 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i % runs * kMomentRun;
        float* into = sums.data() + i * a.channels * 2;
        sum_run(x + i / runs * a.x_stride, a.channels, first,
                first + kMomentRun < a.pixels ? first + kMomentRun : a.pixels, into,
                into + a.channels);
      }
    });
  });
  merge_moment_runs(a, sums.data());
}

void channel_affine(const ChannelAffineArgs& a) {
  tensor::with_float_type(a.dtype, [&](auto type) {
    using T = decltype(type);
    tensor::parallel_for(a.rows * a.pixels, 64, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t row = i / a.pixels, pixel = i % a.pixels;
        const float* scale = a.scale_shift + row * 2 * a.channels;
        affine_pixel(static_cast<const T*>(a.x) + row * a.x_stride + pixel * a.channels, scale,
                     scale + a.channels, a.channels, a.silu, static_cast<T*>(a.y) + i * a.channels);
      }
    });
  });
}

}  // namespace tessera::kernels::simd
TESSERA_SIMD_END

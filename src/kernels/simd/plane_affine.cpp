#include "kernels/plane_affine.h"

#include <array>
#include <bit>
#include <cmath>

#include "kernels/glibc_exp.h"
#include "kernels/simd/vectorised.h"
#include "tensor/scope.h"
#include "tensor/tensor.h"

namespace tessera::kernels::simd {
namespace {

constexpr int64_t kRun = 64;  // channels at a time, in buffers that stay in the nearest cache
using Run = std::array<float, kRun>;

}  // namespace
}  // namespace tessera::kernels::simd

TESSERA_SIMD_UNFUSED_BEGIN
namespace tessera::kernels::simd {
namespace {

// Not inlined: it would be fused where its caller may be.
template <class T>
__attribute__((noinline)) void affine(const T* x, const float* scale, const float* shift,
                                      const float* gain, const float* bias, int64_t count,
                                      float* v) {
  for (int64_t c = 0; c < count; ++c)
    v[c] = (tensor::to_float(x[c]) * scale[c] + shift[c]) * gain[c] + bias[c];
}

}  // namespace
}  // namespace tessera::kernels::simd
TESSERA_SIMD_END

TESSERA_SIMD_BEGIN
namespace tessera::kernels::simd {
namespace {

float exp_as_glibc(float x) {
  using namespace glibc_exp;
  double wide = x;
  wide = wide > kFarthest ? kFarthest : wide;
  wide = wide < -kFarthest ? -kFarthest : wide;
  const double shifted = std::fma(kToRoots, wide, kShift);
  const auto whole = std::bit_cast<uint64_t>(shifted);
  const double r = std::fma(kToRoots, wide, -(shifted - kShift));
  const double root = std::bit_cast<double>(kRoots[whole % 32] + (whole << 47));
  const double z = std::fma(kCubic, r, kSquare);
  return static_cast<float>(std::fma(z, r * r, std::fma(kLinear, r, 1.0)) * root);
}

template <class T>
void silu_of(const float* v, int64_t count, T* y) {
  Run e;
  for (int64_t c = 0; c < count; ++c) e[static_cast<size_t>(c)] = exp_as_glibc(-v[c]);
  for (int64_t c = 0; c < count; ++c) narrow(v[c] / (1 + e[static_cast<size_t>(c)]), y + c);
}

template <class T>
void one_line(const PlaneAffineArgs& a, int64_t line) {
  const int64_t channels = a.channels, t = line / a.size.height, row = line % a.size.height;
  const int64_t from = nearest_frame(t, a.size.frames, a.field.frames);
  const int64_t above = row * a.field.height / a.size.height;
  const float *scale = a.scale_shift, *shift = scale + channels;
  for (int64_t column = 0; column < a.size.width; ++column) {
    const int64_t there =
        ((from * a.field.height + above) * a.field.width + column * a.field.width / a.size.width) *
        channels;
    const int64_t here = (line * a.size.width + column) * channels;
    for (int64_t c = 0; c < channels; c += kRun) {
      const int64_t count = channels - c < kRun ? channels - c : kRun;
      Run v;
      affine(static_cast<const T*>(a.x) + here + c, scale + c, shift + c, a.gain + there + c,
             a.bias + there + c, count, v.data());
      silu_of(v.data(), count, static_cast<T*>(a.y) + here + c);
    }
  }
}

}  // namespace

void plane_affine(const PlaneAffineArgs& args) {
  tensor::with_float_type(args.dtype, [&](auto kind) {
    tensor::parallel_for(args.size.frames * args.size.height, 4, [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line) one_line<decltype(kind)>(args, line);
    });
  });
}

}  // namespace tessera::kernels::simd
TESSERA_SIMD_END

#include "kernels/plane_affine.h"

#include <cmath>

#include "tensor/scope.h"
#include "tensor/tensor.h"

namespace tessera::kernels::reference {
namespace {

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
    const float *gain = a.gain + there, *bias = a.bias + there;
    const T* in = static_cast<const T*>(a.x) + here;
    T* to = static_cast<T*>(a.y) + here;
    for (int64_t c = 0; c < channels; ++c) {
      const float v = (tensor::to_float(in[c]) * scale[c] + shift[c]) * gain[c] + bias[c];
      to[c] = tensor::from_float<T>(v / (1 + std::exp(-v)));
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

}  // namespace tessera::kernels::reference

#include "ops/plane_affine.h"

#include <cmath>

#include "base/fail.h"
#include "tensor/scope.h"
#include "tensor/shape_format.h"

namespace tessera::ops {
namespace {

template <class T>
void one_line(const Tensor& x, const Tensor& norm, const Tensor& y, const Tensor& b, Tensor& out,
              int64_t line) {
  const int64_t height = x.size(1), width = x.size(2), channels = x.size(3);
  const int64_t t = line / height, row = line % height;
  const int64_t from = nearest_frame(t, x.size(0), y.size(0)), above = row * y.size(1) / height;
  const float *scale = norm.data<float>(), *shift = scale + channels;
  for (int64_t column = 0; column < width; ++column) {
    const int64_t there =
        ((from * y.size(1) + above) * y.size(2) + column * y.size(2) / width) * channels;
    const int64_t here = (line * width + column) * channels;
    const float *gain = y.data<float>() + there, *bias = b.data<float>() + there;
    const T* in = x.data<T>() + here;
    T* to = out.data<T>() + here;
    for (int64_t c = 0; c < channels; ++c) {
      const float v = (tensor::to_float(in[c]) * scale[c] + shift[c]) * gain[c] + bias[c];
      to[c] = tensor::from_float<T>(v / (1 + std::exp(-v)));
    }
  }
}

}  // namespace

int64_t nearest_frame(int64_t t, int64_t frames, int64_t from) {
  if (frames > 1 && frames % 2 == 1 && from > 1)
    return t == 0 ? 0 : 1 + (t - 1) * (from - 1) / (frames - 1);
  return t * from / frames;
}

Tensor plane_affine(const Tensor& x, const Tensor& norm, const Tensor& y, const Tensor& b) {
  require(x.rank() == 4 && x.dense() && tensor::is_float(x.dtype()) && y.rank() == 4 &&
              y.size(3) == x.size(3) && b.shape() == y.shape() && y.dtype() == DType::f32 &&
              b.dtype() == DType::f32 && norm.elements() == 2 * x.size(3),
          ErrorCode::usage, "plane_affine: x {}, norm {}, y {} and b {} do not fit", x.shape(),
          norm.shape(), y.shape(), b.shape());
  Tensor out = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (auto* meter = tensor::current_scope().meter.get())
    meter->add("plane_affine", 12 * double(x.elements()), 2 * double(x.bytes()));
  if (x.is_meta() || x.elements() == 0) return out;
  tensor::with_float_type(x.dtype(), [&](auto kind) {
    tensor::parallel_for(x.size(0) * x.size(1), 4, [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line)
        one_line<decltype(kind)>(x, norm, y, b, out, line);
    });
  });
  return out;
}

}  // namespace tessera::ops

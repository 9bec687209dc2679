#include "kernels/norm.h"

#include <cmath>

#include "tensor/scope.h"
#include "tensor/tensor.h"

namespace tessera::kernels::reference {
namespace {

template <class T>
void one_group(const NormArgs& a, int64_t token, int64_t group) {
  const int64_t from = group * a.width;
  const T* x = static_cast<const T*>(a.x) + token * a.x_stride + from;
  T* y = static_cast<T*>(a.y) + token * a.y_stride + from;
  double sum = 0, squares = 0;
  if (a.centred) {
    for (int64_t i = 0; i < a.width; ++i) sum += double(tensor::to_float(x[i]));
  }
  const double mean = sum / double(a.width);
  for (int64_t i = 0; i < a.width; ++i) {
    const double d = double(tensor::to_float(x[i])) - mean;
    squares += d * d;
  }
  const double factor = 1 / std::sqrt(squares / double(a.width) + double(a.eps));
  const int64_t row = a.row_of ? a.row_of[token] : 0;
  for (int64_t i = 0; i < a.width; ++i) {
    double v = (double(tensor::to_float(x[i])) - mean) * factor;
    if (a.weight) v *= double(a.weight[i]);
    if (a.bias) v += double(a.bias[i]);
    if (a.scale) v *= 1 + double(a.scale[row * a.scale_stride + from + i]);
    if (a.shift) v += double(a.shift[row * a.shift_stride + from + i]);
    y[i] = tensor::from_float<T>(static_cast<float>(v));
  }
  for (int64_t i = 0; a.cos && i < a.width; i += 2) {
    const int64_t at = token * (a.width / 2) + i / 2;
    const float cosine = a.cos[at], sine = a.sin[at];
    const float first = tensor::to_float(y[i]), second = tensor::to_float(y[i + 1]);
    y[i] = tensor::from_float<T>(first * cosine - second * sine);
    y[i + 1] = tensor::from_float<T>(second * cosine + first * sine);
  }
}

}  // namespace

void norm(const NormArgs& a) {
  tensor::parallel_for(a.tokens, 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t g = 0; g < a.groups; ++g)
        tensor::with_float_type(a.dtype, [&](auto kind) { one_group<decltype(kind)>(a, t, g); });
  });
}

}  // namespace tessera::kernels::reference

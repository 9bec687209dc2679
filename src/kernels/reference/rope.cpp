#include "kernels/rope.h"

#include "tensor/scope.h"
#include "tensor/tensor.h"

namespace tessera::kernels::reference {
namespace {

template <class T>
void one_token(const RopeArgs& a, int64_t token) {
  const float* cos = a.cos + token * a.pairs;
  const float* sin = a.sin + token * a.pairs;
  const int64_t step = a.interleaved ? 2 : 1, across = a.interleaved ? 1 : a.pairs;
  for (int64_t h = 0; h < a.heads; ++h) {
    const T* x = static_cast<const T*>(a.x) + token * a.x_stride + h * a.head_dim;
    T* y = static_cast<T*>(a.y) + token * a.y_stride + h * a.head_dim;
    for (int64_t i = 0; i < a.pairs; ++i) {
      const float first = tensor::to_float(x[i * step]),
                  second = tensor::to_float(x[i * step + across]);
      y[i * step] = tensor::from_float<T>(first * cos[i] - second * sin[i]);
      y[i * step + across] = tensor::from_float<T>(second * cos[i] + first * sin[i]);
    }
    for (int64_t i = 2 * a.pairs; i < a.head_dim; ++i) y[i] = x[i];
  }
}

}  // namespace

void rope(const RopeArgs& a) {
  tensor::parallel_for(a.tokens, 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      tensor::with_float_type(a.dtype, [&](auto kind) { one_token<decltype(kind)>(a, t); });
  });
}

}  // namespace tessera::kernels::reference

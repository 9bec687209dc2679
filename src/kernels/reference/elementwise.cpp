#include "kernels/elementwise.h"

#include <cmath>
#include <cstring>

#include "tensor/scope.h"
#include "tensor/tensor.h"

namespace tessera::kernels::reference {
namespace {

float silu(float x) { return x / (1 + std::exp(-x)); }
float gelu_tanh(float x) {
  return 0.5f * x * (1 + std::tanh(0.7978845608028654f * (x + 0.044715f * x * x * x)));
}

template <class Y, class A, class B, class F>
void each(const ElementwiseArgs& args, int64_t t, F f) {
  const A* a = static_cast<const A*>(args.a) + t * args.a_stride;
  const B* b = args.b ? static_cast<const B*>(args.b) + t * args.b_stride : nullptr;
  Y* y = static_cast<Y*>(args.y) + t * args.y_stride;
  for (int64_t i = 0; i < args.columns; ++i)
    y[i] = tensor::from_float<Y>(f(tensor::to_float(a[i]), b ? tensor::to_float(b[i]) : 0.0f, i));
}

template <class Y, class A, class B>
void row(const ElementwiseArgs& args, int64_t t) {
  const auto run = [&](auto f) { each<Y, A, B>(args, t, f); };
  const float alpha = args.alpha, beta = args.beta;
  switch (args.op) {
    case Elementwise::cast: return run([](float a, float, int64_t) { return a; });
    case Elementwise::add: return run([](float a, float b, int64_t) { return a + b; });
    case Elementwise::blend:
      return run([=](float a, float b, int64_t) { return a * alpha + b * beta; });
    case Elementwise::multiply: return run([](float a, float b, int64_t) { return a * b; });
    case Elementwise::scale: return run([=](float a, float, int64_t) { return a / beta * alpha; });
    case Elementwise::silu: return run([](float a, float, int64_t) { return silu(a); });
    case Elementwise::relu: return run([](float a, float, int64_t) { return a < 0 ? 0 : a; });
    case Elementwise::gelu_tanh: return run([](float a, float, int64_t) { return gelu_tanh(a); });
    case Elementwise::swiglu: return run([](float a, float b, int64_t) { return silu(a) * b; });
    case Elementwise::softcap:
      return run([=](float a, float, int64_t) { return alpha * std::tanh(a / alpha); });
    case Elementwise::add_gated: {
      const float* gate = args.gate + (args.row_of ? args.row_of[t] : 0) * args.gate_stride;
      return run([=](float a, float b, int64_t i) { return a + gate[i] * b; });
    }
  }
}

}  // namespace

void elementwise(const ElementwiseArgs& args) {
  const int64_t grain = args.columns > 0 ? 1 + 8192 / args.columns : 1;
  tensor::parallel_for(args.rows, grain, [&](int64_t begin, int64_t end) {
    tensor::with_float_type(args.y_dtype, [&](auto y) {
      tensor::with_float_type(args.a_dtype, [&](auto a) {
        tensor::with_float_type(args.b_dtype, [&](auto b) {
          for (int64_t t = begin; t < end; ++t) row<decltype(y), decltype(a), decltype(b)>(args, t);
        });
      });
    });
  });
}

}  // namespace tessera::kernels::reference

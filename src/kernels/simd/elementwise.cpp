#include "kernels/elementwise.h"

#include "kernels/simd/vectorised.h"
#include "tensor/scope.h"
#include "tensor/tensor.h"

TESSERA_SIMD_BEGIN
namespace tessera::kernels::simd {
namespace {

template <class Y, class A, class B, class F>
void one_row(const ElementwiseArgs& args, int64_t t, F f) {
  const int64_t columns = args.columns;
  const A* a = static_cast<const A*>(args.a) + t * args.a_stride;
  const B* b = static_cast<const B*>(args.b) + t * args.b_stride;
  Y* y = static_cast<Y*>(args.y) + t * args.y_stride;
  TESSERA_IVDEP
  for (int64_t i = 0; i < columns; ++i) narrow(f(widen(a[i]), widen(b[i]), i), y + i);
}

template <class Y, class A, class F>
void one_row(const ElementwiseArgs& args, int64_t t, F f) {
  const int64_t columns = args.columns;
  const A* a = static_cast<const A*>(args.a) + t * args.a_stride;
  Y* y = static_cast<Y*>(args.y) + t * args.y_stride;
  TESSERA_IVDEP
  for (int64_t i = 0; i < columns; ++i) narrow(f(widen(a[i])), y + i);
}

template <class Y, class A, class B>
void row(const ElementwiseArgs& args, int64_t t) {
  const float alpha = args.alpha, beta = args.beta;
  switch (args.op) {
    case Elementwise::cast: return one_row<Y, A>(args, t, [](float a) { return a; });
    case Elementwise::scale:
      return one_row<Y, A>(args, t, [=](float a) { return a / beta * alpha; });
    case Elementwise::silu: return one_row<Y, A>(args, t, [](float a) { return silu(a); });
    case Elementwise::gelu_tanh:
      return one_row<Y, A>(args, t, [](float a) { return gelu_tanh(a); });
    case Elementwise::gelu_erf: return one_row<Y, A>(args, t, [](float a) { return gelu_erf(a); });
    case Elementwise::add:
      return one_row<Y, A, B>(args, t, [](float a, float b, int64_t) { return a + b; });
    case Elementwise::multiply:
      return one_row<Y, A, B>(args, t, [](float a, float b, int64_t) { return a * b; });
    case Elementwise::blend:
      return one_row<Y, A, B>(args, t,
                              [=](float a, float b, int64_t) { return a * alpha + b * beta; });
    case Elementwise::swiglu:
      return one_row<Y, A, B>(args, t, [](float a, float b, int64_t) { return silu(a) * b; });
    case Elementwise::add_gated: {
      const float* gate = args.gate + (args.row_of ? args.row_of[t] : 0) * args.gate_stride;
      return one_row<Y, A, B>(args, t,
                              [=](float a, float b, int64_t i) { return a + gate[i] * b; });
    }
  }
}

}  // namespace

void elementwise(const ElementwiseArgs& args) {
  const int64_t grain = args.columns > 0 ? 1 + 32768 / args.columns : 1;
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

}  // namespace tessera::kernels::simd
TESSERA_SIMD_END

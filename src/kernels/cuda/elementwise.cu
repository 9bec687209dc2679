#include "kernels/cuda/launch.cuh"
#include "kernels/elementwise.h"

namespace tessera::kernels::cuda {
namespace {

__device__ inline float apply(const ElementwiseArgs& args, float a, float b, float gate) {
  switch (args.op) {
    case Elementwise::cast: return a;
    case Elementwise::add: return a + b;
    case Elementwise::blend: return a * args.alpha + b * args.beta;
    case Elementwise::multiply: return a * b;
    case Elementwise::scale: return a / args.beta * args.alpha;
    case Elementwise::silu: return silu(a);
    case Elementwise::relu: return a < 0 ? 0 : a;
    case Elementwise::gelu_tanh: return gelu_tanh(a);
    case Elementwise::swiglu: return silu(a) * b;
    case Elementwise::softcap: return args.alpha * tanhf(a / args.alpha);
    case Elementwise::add_gated: return a + gate * b;
  }
  return a;
}

// Each thread processes V elements of a row at a time, over the whole matrix in steps of the grid.
template <int V>
__global__ void __launch_bounds__(kSpreadThreads) elementwise_kernel(ElementwiseArgs args) {
  after_those_before();
  const int64_t chunks = args.columns / V, total = args.rows * chunks;
  for (int64_t i = first_piece(); i < total; i += piece_step()) {
    const int64_t t = i / chunks, column = i % chunks * V;
    float a[V], b[V] = {}, gate[V] = {}, y[V];
    load<V>(args.a, args.a_dtype, t * args.a_stride + column, a);
    if (args.b) load<V>(args.b, args.b_dtype, t * args.b_stride + column, b);
    if (args.gate) {
      const int64_t row = args.row_of ? args.row_of[t] : 0;
      load<V>(args.gate, DType::f32, row * args.gate_stride + column, gate);
    }
    TESSERA_UNROLL
    for (int j = 0; j < V; ++j) y[j] = apply(args, a[j], b[j], gate[j]);
    store<V>(args.y, args.y_dtype, t * args.y_stride + column, y);
  }
}

bool all_in_words(const ElementwiseArgs& a) {
  return a.columns % 8 == 0 && in_words(a.a, a.a_dtype, a.a_stride) &&
         (!a.b || in_words(a.b, a.b_dtype, a.b_stride)) && in_words(a.y, a.y_dtype, a.y_stride) &&
         (!a.gate || in_words(a.gate, DType::f32, a.gate_stride));
}

}  // namespace

void elementwise(const ElementwiseArgs& args) {
  const bool words = all_in_words(args);
  const int64_t pieces = args.rows * args.columns / (words ? 8 : 1);
  launch("elementwise", words ? elementwise_kernel<8> : elementwise_kernel<1>,
         early(spread(pieces)), args);
}

}  // namespace tessera::kernels::cuda

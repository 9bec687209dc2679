#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/library_product.h"
#include "kernels/cuda/matmul_plan.h"
#include "kernels/device_error.h"
#include "kernels/matmul.h"

namespace tessera::kernels::cuda {
namespace {

__device__ inline float activate(Activation activation, float x, float up) {
  switch (activation) {
    case Activation::none: return x;
    case Activation::silu: return silu(x);
    case Activation::gelu_tanh: return gelu_tanh(x);
    case Activation::gelu_erf: return gelu_erf(x);
    case Activation::swiglu: return silu(x) * up;
  }
  return x;
}

// What the library cannot do, over its sums: f32 [rows, n], paired [rows, 2n].
struct Finish {
  const float* sums;
  int64_t sums_stride, rows, n;
  Epilogue epilogue;
  void* y;
  DType y_dtype;
  int64_t y_stride;
};

template <int V>
__global__ void __launch_bounds__(kSpreadThreads) finish_kernel(Finish f) {
  const Epilogue& e = f.epilogue;
  const int64_t chunks = f.n / V;
  for (int64_t i = first_piece(); i < f.rows * chunks; i += piece_step()) {
    const int64_t t = i / chunks, c = i % chunks * V;
    float v[V], other[V] = {};
    load<V>(f.sums, DType::f32, t * f.sums_stride + c, v);
    if (e.bias) {
      load<V>(e.bias, DType::f32, c, other);
      TESSERA_UNROLL
      for (int j = 0; j < V; ++j) v[j] += other[j];
    }
    if (e.activation == Activation::swiglu)
      load<V>(f.sums, DType::f32, t * f.sums_stride + f.n + c, other);
    TESSERA_UNROLL
    for (int j = 0; j < V; ++j) v[j] = activate(e.activation, v[j], other[j]);
    if (e.gate) {
      load<V>(e.gate, DType::f32, (e.row_of ? e.row_of[t] : 0) * e.gate_stride + c, other);
      TESSERA_UNROLL
      for (int j = 0; j < V; ++j) v[j] *= other[j];
    }
    if (e.residual) {
      load<V>(e.residual, e.residual_dtype, t * e.residual_stride + c, other);
      TESSERA_UNROLL
      for (int j = 0; j < V; ++j) v[j] += other[j];
    }
    store<V>(f.y, f.y_dtype, t * f.y_stride + c, v);
  }
}

bool all_in_words(const Finish& f) {
  const Epilogue& e = f.epilogue;
  return f.n % 8 == 0 && in_words(f.y, f.y_dtype, f.y_stride) &&
         (!e.bias || in_words(e.bias, DType::f32, 0)) &&
         (!e.gate || in_words(e.gate, DType::f32, e.gate_stride)) &&
         (!e.residual || in_words(e.residual, e.residual_dtype, e.residual_stride));
}

}  // namespace

void matmul(const MatmulArgs& args) {
  const PackedWeight& w = *args.weight;
  if (args.rows == 0 || w.n == 0) return;
  if (w.dtype == DType::i8)
    unsupported("matmul", "bits of a weight:", 8, "weights in f32 or bf16 outside the experts");
  const MatmulPlan plan = matmul_plan(args);
  LibraryProduct product{.x = args.x,
                         .w = w.data.raw(),
                         .dtype = w.dtype,
                         .rows = args.rows,
                         .n = w.paired ? 2 * w.n : w.n,
                         .k = w.k,
                         .x_stride = args.x_stride,
                         .y_stride = args.y_stride,
                         .y = args.y,
                         .y_dtype = args.y_dtype,
                         .epilogue = plan.inside,
                         .bias = args.epilogue.bias,
                         .beta = plan.adds_to_y ? 1.0f : 0.0f};
  const Form form = w.dtype == DType::f32 ? Form::f32 : Form::bf16;
  const Scratch converted("matmul", plan.converts ? bytes_of(form, args.rows * w.k) : 0);
  if (plan.converts) {
    convert("matmul", args.x, args.x_dtype, args.x_stride, args.rows, w.k, form,
            converted.as<void>());
    product.x = converted.as<void>();
    product.x_stride = w.k;
  }
  if (plan.complete) return library_product(product);
  const Scratch sums("matmul", args.rows * product.n * 4);
  product.y = sums.as<void>();
  product.y_dtype = DType::f32;
  product.y_stride = product.n;
  library_product(product);
  const Finish finish{sums.as<float>(), product.n, args.rows,    w.n,
                      args.epilogue,    args.y,    args.y_dtype, args.y_stride};
  const bool words = all_in_words(finish);
  launch("matmul", words ? finish_kernel<8> : finish_kernel<1>,
         spread(args.rows * w.n / (words ? 8 : 1)), finish);
}

}  // namespace tessera::kernels::cuda

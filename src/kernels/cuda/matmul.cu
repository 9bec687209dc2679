#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/library_product.h"
#include "kernels/cuda/matmul_finish.cuh"
#include "kernels/cuda/matmul_plan.h"
#include "kernels/cuda/matmul_sm90.h"
#include "kernels/device_error.h"
#include "kernels/matmul.h"

namespace tessera::kernels::cuda {
namespace {

template <Activation Kind, int V>
__global__ void __launch_bounds__(kSpreadThreads) finish_kernel(Finish f) {
  after_those_before();
  const int64_t chunks = f.n / V;
  for (int64_t i = first_piece(); i < f.rows * chunks; i += piece_step()) {
    const int64_t t = i / chunks, c = i % chunks * V;
    float v[V], up[V] = {};
    load<V>(f.sums, DType::f32, t * f.sums_stride + c, v);
    if constexpr (Kind == Activation::swiglu)
      load<V>(f.sums, DType::f32, t * f.sums_stride + f.n + c, up);
    finish_chunk<Kind, V>(f, t, c, v, up);
  }
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
  const Scratch converted(plan.converts ? bytes_of(form, args.rows * w.k) : 0);
  if (plan.converts) {
    convert("matmul", args.x, args.x_dtype, args.x_stride, args.rows, w.k, form,
            converted.as<void>());
    product.x = converted.as<void>();
    product.x_stride = w.k;
  }
  if (plan.complete) return library_product(product);
  Finish finish{nullptr,       product.n, args.rows,    w.n,
                args.epilogue, args.y,    args.y_dtype, args.y_stride};
  const bool words = all_in_words(finish);
  if (words && !has_half(finish) && serves_sm90(product) && has_warpgroups())
    if (const int width = product_width(args.rows, w.n, w.k, w.paired, multiprocessors()))
      return matmul_sm90(product, finish, width);
  const Scratch sums(args.rows * product.n * 4);
  product.y = sums.as<void>();
  product.y_dtype = DType::f32;
  product.y_stride = product.n;
  library_product(product);
  finish.sums = sums.as<float>();
  finish.sums_stride = product.n;
  with_activation(args.epilogue.activation, [&](auto kind) {
    launch("matmul", words ? finish_kernel<kind(), 8> : finish_kernel<kind(), 1>,
           early(spread(args.rows * w.n / (words ? 8 : 1))), finish);
  });
}

}  // namespace tessera::kernels::cuda

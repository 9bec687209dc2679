#include <algorithm>
#include <span>
#include <vector>

#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/expand.cuh"
#include "kernels/cuda/few_rows.h"
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
    if constexpr (is_paired(Kind)) load<V>(f.sums, DType::f32, t * f.sums_stride + f.n + c, up);
    finish_chunk<Kind, V>(f, t, c, v, up);
  }
}

// A product with its epilogue, for the Hopper kernel.
FinishedProduct finished(const MatmulArgs& args) {
  const PackedWeight& w = *args.weight;
  return {{.x = args.x,
           .w = w.data.raw(),
           .dtype = w.dtype,
           .rows = args.rows,
           .n = w.paired ? 2 * w.n : w.n,
           .k = w.k,
           .x_stride = args.x_stride,
           .y_stride = args.y_stride,
           .y = args.y,
           .y_dtype = args.y_dtype,
           .bias = args.epilogue.bias},
          {nullptr, 0, args.rows, w.n, args.epilogue, args.y, args.y_dtype, args.y_stride},
          w.dtype == DType::i8 ? w.scales.data<float>() : nullptr};
}

ProductSize size_of(const MatmulArgs& args) {
  return {args.rows, args.weight->n, args.weight->k, args.weight->paired,
          matmul_plan(args).complete};
}

bool by_warpgroups(const FinishedProduct& p) {
  return all_in_words(p.finish) && !has_half(p.finish) && serves_sm90(p.product) &&
         has_warpgroups();
}

// True if a single kernel supports all products.
bool fit_together(std::span<const MatmulArgs> all) {
  if (all.size() < 2 || all.size() > kMostGrouped) return false;
  return std::all_of(all.begin(), all.end(), [&](const MatmulArgs& args) {
    const PackedWeight& w = *args.weight;
    return args.rows > 0 && w.n > 0 && !args.low && w.k == all[0].weight->k &&
           w.dtype == DType::bf16 && args.x_dtype == DType::bf16 &&
           args.epilogue.activation == all[0].epilogue.activation && by_warpgroups(finished(args));
  });
}

// Writes the low-rank product into the sums; the main product is added later.
void start_with_low(const MatmulArgs& args, LibraryProduct sums) {
  const PackedWeight& up = args.weight->low->up;
  sums.x = args.low;
  sums.w = up.data.raw();
  sums.dtype = DType::f32;
  sums.k = sums.x_stride = up.k;
  library_product(sums);
}

// Weights in int8: read as they are on compute capability 9, otherwise expanded to bf16 for the
// call.
void matmul_int8(MatmulArgs args) {
  const PackedWeight& w = *args.weight;
  const bool converts = args.x_dtype != DType::bf16;
  const Scratch converted(converts ? bytes_of(Form::bf16, args.rows * w.k) : 0);
  if (converts) {
    convert("matmul", args.x, args.x_dtype, args.x_stride, args.rows, w.k, Form::bf16,
            converted.as<void>());
    args.x = converted.as<void>();
    args.x_dtype = DType::bf16;
    args.x_stride = w.k;
  }
  const FinishedProduct product = finished(args);
  if (!args.low && by_warpgroups(product)) return matmul_sm90({&product, 1}, Tiles::of_256);
  const int64_t rows = w.paired ? 2 * w.n : w.n, bytes = rows * w.k * 2;
  const Scratch values(bytes);
  expand("matmul", w, values.as<void>());
  PackedWeight expanded{w.n, w.k, DType::bf16, w.isa, w.paired, {}};
  expanded.data = tensor::Tensor::over(tensor::Storage::view(values.as<void>(), bytes, nullptr), 0,
                                       {rows, w.k}, DType::bf16);
  expanded.low = w.low;
  args.weight = &expanded;
  matmul(args);
}

}  // namespace

void matmul(const MatmulArgs& args) {
  const PackedWeight& w = *args.weight;
  if (args.rows == 0 || w.n == 0) return;
  if (w.dtype == DType::i8) return matmul_int8(args);
  if (!args.low && serves_few_rows(args)) return few_rows(args);
  const MatmulPlan plan = matmul_plan(args);
  FinishedProduct whole = finished(args);
  LibraryProduct& product = whole.product;
  Finish& finish = whole.finish;
  product.epilogue = plan.inside;
  product.beta = plan.adds_to_y ? 1.0f : 0.0f;
  const Form form = w.dtype == DType::f32 ? Form::f32 : Form::bf16;
  const Scratch converted(plan.converts ? bytes_of(form, args.rows * w.k) : 0);
  if (plan.converts) {
    convert("matmul", args.x, args.x_dtype, args.x_stride, args.rows, w.k, form,
            converted.as<void>());
    product.x = converted.as<void>();
    product.x_stride = w.k;
  }
  if (plan.complete) return library_product(product);
  if (!args.low && by_warpgroups(whole))
    if (const Tiles tiles = best_way(size_of(args), multiprocessors()).tiles;
        tiles != Tiles::library)
      return matmul_sm90({&whole, 1}, tiles);
  const bool words = all_in_words(finish);
  const Scratch sums(args.rows * product.n * 4);
  product.y = sums.as<void>();
  product.y_dtype = DType::f32;
  product.y_stride = product.n;
  if (args.low) {
    start_with_low(args, product);
    product.beta = 1;
  }
  library_product(product);
  finish.sums = sums.as<float>();
  finish.sums_stride = product.n;
  with_activation(args.epilogue.activation, [&](auto kind) {
    launch("matmul", words ? finish_kernel<kind(), 8> : finish_kernel<kind(), 1>,
           early(spread(args.rows * w.n / (words ? 8 : 1))), finish);
  });
}

void matmul_group(std::span<const MatmulArgs> all) {
  Tiles tiles = Tiles::library;
  std::vector<FinishedProduct> together;
  if (fit_together(all)) {
    std::vector<ProductSize> sizes;
    for (const MatmulArgs& args : all) {
      together.push_back(finished(args));
      sizes.push_back(size_of(args));
    }
    tiles = group_tiles(sizes, multiprocessors());
  }
  if (tiles != Tiles::library) return matmul_sm90(together, tiles);
  for (const MatmulArgs& args : all) matmul(args);
}

}  // namespace tessera::kernels::cuda

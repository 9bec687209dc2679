#include "kernels/conv.h"
#include "kernels/cuda/conv_sm90.h"
#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/matmul_finish.cuh"
#include "kernels/cuda/product.cuh"
#include "kernels/cuda/product_f32.cuh"
#include "kernels/cuda/product_sm90.cuh"
#include "kernels/device_error.h"

namespace tessera::kernels::cuda {
namespace {

// x -> act(x * scale + shift), rounded to the filter's dtype, dense.
struct Prepare {
  const void* x;
  DType dtype;
  int64_t x_stride, rows, pixels, channels;
  const float* scale_shift;
  bool silu_after;
  void* y;
  Form form;
};

// Each row of the grid's blocks handles an image; each thread V channels of a pixel.
template <int V>
__global__ void __launch_bounds__(kSpreadThreads)
    prepare_kernel(Prepare p, Divisor chunks, int64_t first_pixel, uint32_t pieces) {
  for (int64_t r = blockIdx.y; r < p.rows; r += gridDim.y)
    for (uint32_t i = first_small_piece(); i < pieces; i += small_piece_step()) {
      const RowPlace at(i, chunks);
      const int64_t c = int64_t{at.chunk} * V, in_row = (first_pixel + at.row) * p.channels + c;
      float v[V], factor[V], shift[V];
      load<V>(p.x, p.dtype, r * p.x_stride + in_row, v);
      if (p.scale_shift) {
        load<V>(p.scale_shift, DType::f32, r * 2 * p.channels + c, factor);
        load<V>(p.scale_shift, DType::f32, (r * 2 + 1) * p.channels + c, shift);
        TESSERA_UNROLL
        for (int j = 0; j < V; ++j) v[j] = v[j] * factor[j] + shift[j];
      }
      TESSERA_UNROLL
      for (int j = 0; j < V; ++j) v[j] = p.silu_after ? silu(v[j]) : v[j];
      put_all<V>(p.y, p.form, 0, r * p.pixels * p.channels + in_row, v);
    }
}

template <int V>
void prepare(const Prepare& p) {
  const int64_t chunks = p.channels / V;
  each_run_of_rows(p.pixels, chunks, [&](int64_t first, int64_t count) {
    Launch shape = spread(count * chunks);
    shape.rows = static_cast<int>(p.rows < 65535 ? p.rows : 65535);  // maximum of a grid
    launch("conv", prepare_kernel<V>, shape, p, Divisor(chunks), first,
           static_cast<uint32_t>(count * chunks));
  });
}

// The image as a matrix: a row for each pixel of the result, with columns (ky, kx, channel).
struct Patches {
  int height, width, channels, kw, stride, pad_top, pad_left, scale;
  int64_t x_stride, pixels, out_width, count;  // pixels of a result; pixels of all results
};
template <class T>
struct PatchSource {
  struct Row {
    const T* image;  // null: no such pixel
    int y, x;
  };
  const T* x;
  Patches p;
  bool words;
  int repeats = 1;

  __device__ Row row(int64_t m) const {
    if (m >= p.count) return {nullptr, 0, 0};
    // In 32 bits: a 64-bit division is a call, with registers spilled to the stack.
    const unsigned at = static_cast<unsigned>(m), pixels = static_cast<unsigned>(p.pixels);
    const int pixel = static_cast<int>(at % pixels), across = static_cast<int>(p.out_width);
    return {x + int64_t{at / pixels} * p.x_stride, pixel / across * p.stride - p.pad_top,
            pixel % across * p.stride - p.pad_left};
  }
  __device__ const T* at(const Row& row, int, int64_t k) const {
    const int tap = static_cast<int>(k) / p.channels, c = static_cast<int>(k) % p.channels;
    const int y = row.y + tap / p.kw, x_at = row.x + tap % p.kw;
    if (!row.image || y < 0 || x_at < 0 || y >= p.height * p.scale || x_at >= p.width * p.scale)
      return nullptr;
    return row.image + (int64_t{y / p.scale} * p.width + x_at / p.scale) * p.channels + c;
  }
};

struct PixelSink {
  static constexpr bool kPaired = false;
  void* y;
  const void* residual;
  const float* bias;
  DType dtype;
  int64_t count, n;

  __device__ void pair(int64_t m, int64_t column, const float (&sums)[2]) const {
    if (m >= count || column >= n) return;
    const bool both = column + 1 < n;
    float v[2] = {sums[0], sums[1]};
    TESSERA_UNROLL
    for (int i = 0; i < 2; ++i) {
      if (i == 1 && !both) continue;
      if (bias) v[i] += bias[column + i];
      float before[1];
      if (residual) {
        load<1>(residual, dtype, m * n + column + i, before);
        v[i] += before[0];
      }
    }
    store_two(y, dtype, m * n + column, v[0], v[1], both);
  }
};

}  // namespace

// Same for bf16 images of an even number of channels, with half the code, because a kernel
// instantiates a sink for every pair of a thread. (A named function object: code for other GPUs
// does not call this.)
struct PixelPairSink {
  static constexpr bool kPaired = false;
  uint32_t* y;
  const uint32_t* residual;
  const float* bias;
  int64_t count, n;

  explicit PixelPairSink(const PixelSink& sink)
      : y(static_cast<uint32_t*>(sink.y)),
        residual(static_cast<const uint32_t*>(sink.residual)),
        bias(sink.bias),
        count(sink.count),
        n(sink.n) {}
  static bool takes(const PixelSink& sink) {
    return sink.dtype == DType::bf16 && sink.n % 2 == 0 &&
           (reinterpret_cast<uintptr_t>(sink.y) | reinterpret_cast<uintptr_t>(sink.residual)) % 4 ==
               0;
  }
  __device__ void pair(int64_t m, int64_t column, const float (&sums)[2]) const {
    if (m >= count || column >= n) return;
    float low = sums[0], high = sums[1];
    if (bias) low += bias[column], high += bias[column + 1];
    const int64_t at = (m * n + column) / 2;
    if (residual) {
      const uint32_t word = residual[at];
      low += __uint_as_float(word << 16), high += __uint_as_float(word & 0xffff0000u);
    }
    y[at] = pack_bf16(low, high);
  }
};

namespace {

constexpr int kPixels = 128;
constexpr int64_t kMostPixels = 0x7fffff00;

__global__ void __launch_bounds__(kProductThreads)
    conv_kernel(PatchSource<BFloat16> source, TileWeights<BFloat16, false> all, PixelSink sink) {
  const TileWeights<BFloat16, false> w{all.data, all.n, all.k, blockIdx.y * all.kColumns,
                                       all.words};
  product_tile<kPixels>(source, int64_t{blockIdx.x} * kPixels, w, sink);
}

template <int N, class Sink>
__global__ void __launch_bounds__(kComputing, 1)
    conv_sm90_kernel(PatchSource<BFloat16> source, TileWeights<BFloat16, false, N> all, Sink sink) {
#if TESSERA_WARPGROUPS
  const TileWeights<BFloat16, false, N> w{all.data, all.n, all.k, blockIdx.y * all.kColumns,
                                          all.words};
  product_tile_sm90<N>(source, int64_t{blockIdx.x} * kGroupRows, w, sink);
#else
  __trap();
#endif
}

template <int N, class Sink>
void launch_sm90(const PatchSource<BFloat16>& source, const TileWeights<BFloat16, false>& w,
                 const Sink& sink) {
  launch("conv", conv_sm90_kernel<N, Sink>,
         Launch{.blocks = ceil_div<int64_t>(sink.count, kGroupRows),
                .rows = static_cast<int>(ceil_div<int64_t>(w.n, N)),
                .threads = kComputing,
                .shared = group_shared(N)},
         source, TileWeights<BFloat16, false, N>{w.data, w.n, w.k, 0, w.words}, sink);
}

__global__ void __launch_bounds__(kPlainThreads)
    conv_f32_kernel(PatchSource<float> source, PlainWeights<false> all, PixelSink sink) {
  const PlainWeights<false> w{all.data, all.n, all.k, blockIdx.y * all.kColumns};
  product_tile_f32(source, int64_t{blockIdx.x} * kPlainRows, w, sink);
}

Patches patches_of(const ConvArgs& a, int64_t x_stride) {
  const int64_t pixels = a.out_height * a.out_width;
  return {static_cast<int>(a.height),
          static_cast<int>(a.width),
          static_cast<int>(a.weight->in),
          static_cast<int>(a.weight->kw),
          a.stride,
          a.pad_top,
          a.pad_left,
          a.upsample ? 2 : 1,
          x_stride,
          pixels,
          a.out_width,
          a.rows * pixels};
}

// Runs the box kernel if applicable; returns true if so.
bool conv_in_boxes(const ConvArgs& a, const void* x, int64_t x_stride) {
  const PackedConv& w = *a.weight;
  const ImageProduct product{x,
                             {x_stride, a.rows, a.height, a.width, w.in},
                             a.upsample,
                             static_cast<int>(w.kh),
                             static_cast<int>(w.kw),
                             a.pad_top,
                             a.pad_left,
                             a.out_height,
                             a.out_width,
                             w.data.raw()};
  const int64_t pixels = a.rows * a.out_height * a.out_width;
  Finish finish{nullptr, 0, pixels, w.out, {}, a.y, a.y_dtype, w.out};
  if (w.bias.defined()) finish.epilogue.bias = static_cast<const float*>(w.bias.raw());
  finish.epilogue.residual = a.residual;
  finish.epilogue.residual_dtype = a.y_dtype;
  finish.epilogue.residual_stride = w.out;
  if (pixels == 0 || a.stride != 1 || !serves_sm90(product) || has_half(finish)) return false;
  conv_sm90(product, finish);
  return true;
}

}  // namespace

void conv(const ConvArgs& args) {
  const PackedConv& w = *args.weight;
  const int64_t dense = args.height * args.width * w.in, length = w.kh * w.kw * w.in;
  const Form form = w.dtype == DType::bf16 ? Form::bf16 : Form::f32;
  const bool as_is = !args.scale_shift && !args.silu && args.dtype == w.dtype;
  const Scratch prepared(as_is ? 0 : bytes_of(form, args.rows * dense));
  if (!as_is) {
    const Prepare p{
        args.x, args.dtype,       args.x_stride, args.rows,           args.height * args.width,
        w.in,   args.scale_shift, args.silu,     prepared.as<void>(), form};
    const bool in_eights = w.in % 8 == 0 && in_words(args.x, args.dtype, args.x_stride) &&
                           (!args.scale_shift || in_words(args.scale_shift, DType::f32, 0));
    in_eights ? prepare<8>(p) : prepare<1>(p);
  }
  const void* x = as_is ? args.x : prepared.as<void>();
  const Patches patches = patches_of(args, as_is ? args.x_stride : dense);
  if (patches.count > kMostPixels)
    unsupported("conv", "pixels of the result", patches.count, "at most 2^31 - 256");
  const PixelSink sink{args.y,
                       args.residual,
                       w.bias.defined() ? static_cast<const float*>(w.bias.raw()) : nullptr,
                       args.y_dtype,
                       patches.count,
                       w.out};
  if (w.dtype == DType::f32) {
    using Weights = PlainWeights<false>;
    launch("conv", conv_f32_kernel,
           Launch{.blocks = ceil_div<int64_t>(patches.count, kPlainRows),
                  .rows = static_cast<int>(ceil_div<int64_t>(w.out, Weights::kColumns)),
                  .threads = kPlainThreads},
           PatchSource<float>{static_cast<const float*>(x), patches, false},
           Weights{static_cast<const float*>(w.data.raw()), w.out, length, 0}, sink);
    return;
  }
  if (has_warpgroups() && conv_in_boxes(args, x, patches.x_stride)) return;
  using Weights = TileWeights<BFloat16, false>;
  const bool words = w.in % 8 == 0 && in_words(x, DType::bf16, patches.x_stride);
  const PatchSource<BFloat16> source{static_cast<const BFloat16*>(x), patches, words};
  const Weights all{static_cast<const BFloat16*>(w.data.raw()), w.out, length, 0, length % 8 == 0};
  if (has_warpgroups()) {
    const auto run = [&](const auto& to) {
      w.out > 128 ? launch_sm90<256>(source, all, to) : launch_sm90<128>(source, all, to);
    };
    return PixelPairSink::takes(sink) ? run(PixelPairSink(sink)) : run(sink);
  }
  launch("conv", conv_kernel,
         Launch{.blocks = ceil_div<int64_t>(patches.count, kPixels),
                .rows = static_cast<int>(ceil_div<int64_t>(w.out, Weights::kColumns)),
                .threads = kProductThreads,
                .shared = product_shared(kPixels)},
         source, all, sink);
}

}  // namespace tessera::kernels::cuda

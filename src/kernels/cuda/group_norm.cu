#include "kernels/cuda/launch.cuh"
#include "kernels/group_norm.h"

namespace tessera::kernels::cuda {
namespace {

constexpr int kMergeChannels = 32, kMergeLanes = 32, kMergeAtOnce = 8;

// Sums of values and squares relative to the first pixel of the row; each thread takes V channels
// of a run of pixels: sums [rows, runs, 2, channels].
template <int V>
__global__ void __launch_bounds__(kSpreadThreads)
    moment_runs_kernel(ChannelMomentsArgs a, float* sums) {
  const int64_t runs = a.runs(), chunks = a.channels / V;
  for (int64_t i = first_piece(); i < a.rows * runs * chunks; i += piece_step()) {
    const int64_t run = i / chunks % runs, row = i / chunks / runs, c = i % chunks * V;
    const int64_t at = row * a.x_stride + c;
    const int64_t begin = run * kMomentRun;
    const int64_t end = begin + kMomentRun < a.pixels ? begin + kMomentRun : a.pixels;
    float center[V], v[V], sum[V] = {}, squares[V] = {};
    load<V>(a.x, a.dtype, at, center);
    for (int64_t p = begin; p < end; ++p) {
      load<V>(a.x, a.dtype, at + p * a.channels, v);
      TESSERA_UNROLL
      for (int j = 0; j < V; ++j) {
        const float d = v[j] - center[j];
        sum[j] += d;
        squares[j] += d * d;
      }
    }
    const int64_t out = (row * runs + run) * 2 * a.channels + c;
    store<V>(sums, DType::f32, out, sum);
    store<V>(sums, DType::f32, out + a.channels, squares);
  }
}

// Merges runs to moments in f64: each lane sums a strided subset, then lane sums are added in
// order.
__global__ void __launch_bounds__(kMergeChannels* kMergeLanes)
    merge_runs_kernel(ChannelMomentsArgs a, const float* sums) {
  __shared__ double partial[2][kMergeLanes][kMergeChannels];
  const int x = static_cast<int>(threadIdx.x) % kMergeChannels;
  const int lane = static_cast<int>(threadIdx.x) / kMergeChannels;
  const int64_t runs = a.runs(), row = blockIdx.x;
  const int64_t c = int64_t{blockIdx.y} * kMergeChannels + x;
  double sum = 0, squares = 0;
  if (c < a.channels)
    for (int64_t first = lane; first < runs; first += kMergeLanes * kMergeAtOnce) {
      float sums_of[kMergeAtOnce] = {}, squares_of[kMergeAtOnce] = {};  // loads in flight together
      TESSERA_UNROLL
      for (int n = 0; n < kMergeAtOnce; ++n)
        if (const int64_t r = first + n * kMergeLanes; r < runs) {
          const float* from = sums + (row * runs + r) * 2 * a.channels + c;
          sums_of[n] = from[0];
          squares_of[n] = from[a.channels];
        }
      TESSERA_UNROLL
      for (int n = 0; n < kMergeAtOnce; ++n) {
        sum += double{sums_of[n]};
        squares += double{squares_of[n]};
      }
    }
  partial[0][lane][x] = sum;
  partial[1][lane][x] = squares;
  __syncthreads();
  if (lane != 0 || c >= a.channels) return;
  for (int l = 1; l < kMergeLanes; ++l) {
    sum += partial[0][l][x];
    squares += partial[1][l][x];
  }
  float center[1];
  load<1>(a.x, a.dtype, row * a.x_stride + c, center);
  const double pixels = static_cast<double>(a.pixels), shift = sum / pixels;
  const double variance = squares / pixels - shift * shift;
  a.moments[row * 2 * a.channels + c] = static_cast<float>(double{center[0]} + shift);
  a.moments[(row * 2 + 1) * a.channels + c] = static_cast<float>(variance > 0 ? variance : 0);
}

// Each thread handles a group of a row.
__global__ void __launch_bounds__(kSpreadThreads) group_scale_shift_kernel(GroupScaleShiftArgs a) {
  const int64_t width = a.channels / a.groups;
  for (int64_t i = first_piece(); i < a.rows * a.groups; i += piece_step()) {
    const int64_t at = i / a.groups * 2 * a.channels, group = i % a.groups * width;
    const float *mean = a.moments + at + group, *variance = mean + a.channels;
    float *scale = a.scale_shift + at + group, *shift = scale + a.channels;
    double center = 0, deviation = 0;
    for (int64_t c = 0; c < width; ++c) center += mean[c];
    center /= static_cast<double>(width);
    for (int64_t c = 0; c < width; ++c)
      deviation += variance[c] + (mean[c] - center) * (mean[c] - center);
    const double rate = 1 / sqrt(deviation / static_cast<double>(width) + double{a.eps});
    for (int64_t c = 0; c < width; ++c) {
      const double gain = rate * (a.weight ? a.weight[group + c] : 1);
      scale[c] = static_cast<float>(gain);
      shift[c] = static_cast<float>((a.bias ? a.bias[group + c] : 0) - center * gain);
    }
  }
}

template <int V>
__global__ void __launch_bounds__(kSpreadThreads) channel_affine_kernel(ChannelAffineArgs a) {
  const int64_t chunks = a.channels / V, total = a.rows * a.pixels * chunks;
  for (int64_t i = first_piece(); i < total; i += piece_step()) {
    const int64_t c = i % chunks * V, pixel = i / chunks % a.pixels, row = i / chunks / a.pixels;
    const float* factors = a.scale_shift + row * 2 * a.channels + c;
    float v[V], scale[V], shift[V];
    load<V>(a.x, a.dtype, row * a.x_stride + pixel * a.channels + c, v);
    load<V>(factors, DType::f32, 0, scale);
    load<V>(factors, DType::f32, a.channels, shift);
    TESSERA_UNROLL
    for (int j = 0; j < V; ++j) {
      v[j] = v[j] * scale[j] + shift[j];
      if (a.silu) v[j] = silu(v[j]);
    }
    store<V>(a.y, a.dtype, (row * a.pixels + pixel) * a.channels + c, v);
  }
}

}  // namespace

void channel_moments(const ChannelMomentsArgs& args) {
  if (args.rows * args.channels == 0) return;
  const int64_t runs = args.runs();
  const Scratch sums(args.rows * runs * 2 * args.channels * 4);
  const bool words = args.channels % 8 == 0 && in_words(args.x, args.dtype, args.x_stride);
  launch("channel_moments", words ? moment_runs_kernel<8> : moment_runs_kernel<1>,
         spread(args.rows * runs * (args.channels / (words ? 8 : 1))), args, sums.as<float>());
  launch("channel_moments", merge_runs_kernel,
         Launch{.blocks = args.rows,
                .rows = static_cast<int>(ceil_div<int64_t>(args.channels, kMergeChannels)),
                .threads = kMergeChannels * kMergeLanes},
         args, static_cast<const float*>(sums.as<float>()));
}

void channel_affine(const ChannelAffineArgs& args) {
  const bool words = args.channels % 8 == 0 && in_words(args.x, args.dtype, args.x_stride) &&
                     in_words(args.y, args.dtype, 0) && in_words(args.scale_shift, DType::f32, 0);
  const int64_t pieces = args.rows * args.pixels * args.channels / (words ? 8 : 1);
  launch("channel_affine", words ? channel_affine_kernel<8> : channel_affine_kernel<1>,
         spread(pieces), args);
}

void group_scale_shift(const GroupScaleShiftArgs& args) {
  launch("group_scale_shift", group_scale_shift_kernel, spread(args.rows * args.groups), args);
}

}  // namespace tessera::kernels::cuda

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/norm_plan.h"
#include "kernels/device_error.h"
#include "kernels/norm.h"

namespace tessera::kernels::cuda {
namespace {

// Sum over the threads of a row, in all of them. Rows of up to 32 lanes lie inside a warp; longer
// rows add the sums of their warps in order.
__device__ inline float sum_over_row(float x, int lanes) {
  if (lanes <= kWarp) return sum_over_lanes(x, lanes);
  __shared__ float partial[kWarp];
  x = sum_over_lanes(x, kWarp);
  __syncthreads();  // the previous sum has been read
  if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = x;
  __syncthreads();
  float sum = 0;
  for (int warp = 0; warp < lanes / kWarp; ++warp) sum += partial[warp];
  return sum;
}

template <int V>
__device__ inline void finish(const NormArgs& a, int64_t row, int64_t from, int64_t i,
                              float (&v)[V]) {
  float other[V];
  if (a.weight) {
    load<V>(a.weight, DType::f32, i, other);
    TESSERA_UNROLL
    for (int j = 0; j < V; ++j) v[j] *= other[j];
  }
  if (a.bias) {
    load<V>(a.bias, DType::f32, i, other);
    TESSERA_UNROLL
    for (int j = 0; j < V; ++j) v[j] += other[j];
  }
  if (a.scale) {
    load<V>(a.scale, DType::f32, row * a.scale_stride + from + i, other);
    TESSERA_UNROLL
    for (int j = 0; j < V; ++j) v[j] *= 1 + other[j];
  }
  if (a.shift) {
    load<V>(a.shift, DType::f32, row * a.shift_stride + from + i, other);
    TESSERA_UNROLL
    for (int j = 0; j < V; ++j) v[j] += other[j];
  }
}

// Rotates a rounded result as rope does.
__device__ inline void turn(const NormArgs& a, int64_t token, int64_t i, float (&v)[8]) {
  const int64_t at = token * (a.width / 2) + i / 2;
  const float4 cosines = *reinterpret_cast<const float4*>(a.cos + at);
  const float4 sines = *reinterpret_cast<const float4*>(a.sin + at);
  const float cosine[4] = {cosines.x, cosines.y, cosines.z, cosines.w};
  const float sine[4] = {sines.x, sines.y, sines.z, sines.w};
  TESSERA_UNROLL
  for (int j = 0; j < 8; ++j)
    if (a.dtype == DType::bf16) v[j] = widen(narrow<BFloat16>(v[j]));
  TESSERA_UNROLL
  for (int j = 0; j < 8; j += 2) {
    const float low = v[j] * cosine[j / 2] - v[j + 1] * sine[j / 2];
    v[j + 1] = v[j + 1] * cosine[j / 2] + v[j] * sine[j / 2];
    v[j] = low;
  }
}

template <int V, int Chunks>
__global__ void __launch_bounds__(kMostNormThreads) norm_kernel(NormArgs a, NormPlan plan) {
  after_those_before();
  const int lane = static_cast<int>(threadIdx.x) % plan.lanes;
  const int64_t run = int64_t{blockIdx.x} * plan.rows_per_block() + threadIdx.x / plan.lanes;
  const bool in_range = run < a.tokens * a.groups;  // every lane takes part in the sums
  const int64_t token = in_range ? run / a.groups : 0,
                from = in_range ? run % a.groups * a.width : 0;
  float v[Chunks][V];
  float sum = 0;
  TESSERA_UNROLL
  for (int c = 0; c < Chunks; ++c) {
    const int64_t i = (int64_t{c} * plan.lanes + lane) * V;
    TESSERA_UNROLL
    for (int j = 0; j < V; ++j) v[c][j] = 0;
    if (in_range && i < a.width) load<V>(a.x, a.dtype, token * a.x_stride + from + i, v[c]);
    TESSERA_UNROLL
    for (int j = 0; j < V; ++j) sum += v[c][j];
  }
  const float width = static_cast<float>(a.width);
  const float mean = a.centred ? sum_over_row(sum, plan.lanes) / width : 0;
  float squares = 0;
  TESSERA_UNROLL
  for (int c = 0; c < Chunks; ++c)
    if ((int64_t{c} * plan.lanes + lane) * V < a.width) {
      TESSERA_UNROLL
      for (int j = 0; j < V; ++j) {
        v[c][j] -= mean;
        squares += v[c][j] * v[c][j];
      }
    }
  const float factor = 1 / sqrtf(sum_over_row(squares, plan.lanes) / width + a.eps);
  if (!in_range) return;
  const int64_t row = a.row_of ? a.row_of[token] : 0;
  TESSERA_UNROLL
  for (int c = 0; c < Chunks; ++c) {
    const int64_t i = (int64_t{c} * plan.lanes + lane) * V;
    if (i >= a.width) continue;
    TESSERA_UNROLL
    for (int j = 0; j < V; ++j) v[c][j] *= factor;
    finish<V>(a, row, from, i, v[c]);
    if constexpr (V == 8)
      if (a.cos) turn(a, token, i, v[c]);
    store<V>(a.y, a.dtype, token * a.y_stride + from + i, v[c]);
  }
}

// Rows too long for registers use a block each: read once for each sum, and once more.
__global__ void __launch_bounds__(kMostNormThreads) norm_long_kernel(NormArgs a, NormPlan plan) {
  after_those_before();
  const int64_t run = blockIdx.x, token = run / a.groups, from = run % a.groups * a.width;
  const int64_t x = token * a.x_stride + from, y = token * a.y_stride + from;
  float v[1], sum = 0, squares = 0;
  for (int64_t i = threadIdx.x; i < a.width; i += plan.lanes) {
    load<1>(a.x, a.dtype, x + i, v);
    sum += v[0];
  }
  const float width = static_cast<float>(a.width);
  const float mean = a.centred ? sum_over_row(sum, plan.lanes) / width : 0;
  for (int64_t i = threadIdx.x; i < a.width; i += plan.lanes) {
    load<1>(a.x, a.dtype, x + i, v);
    squares += (v[0] - mean) * (v[0] - mean);
  }
  const float factor = 1 / sqrtf(sum_over_row(squares, plan.lanes) / width + a.eps);
  const int64_t row = a.row_of ? a.row_of[token] : 0;
  for (int64_t i = threadIdx.x; i < a.width; i += plan.lanes) {
    load<1>(a.x, a.dtype, x + i, v);
    v[0] = (v[0] - mean) * factor;
    finish<1>(a, row, from, i, v);
    store<1>(a.y, a.dtype, y + i, v);
  }
}

bool all_in_words(const NormArgs& a) {
  const auto floats = [](const float* p, int64_t stride) {
    return !p || in_words(p, DType::f32, stride);
  };
  return a.width % 8 == 0 && in_words(a.x, a.dtype, a.x_stride) &&
         in_words(a.y, a.dtype, a.y_stride) && floats(a.weight, 0) && floats(a.bias, 0) &&
         floats(a.cos, 0) && floats(a.sin, 0) && floats(a.shift, a.shift_stride) &&
         floats(a.scale, a.scale_stride);
}

}  // namespace

void norm(const NormArgs& args) {
  if (args.width > kMostNormWidth)
    unsupported("norm", "width", args.width, "at most 32768 channels");
  const NormPlan plan = norm_plan(args.width, all_in_words(args));
  if (args.cos && (plan.vector != 8 || plan.chunks > 4))
    unsupported("norm", "width", args.width, "turned runs of up to 4096 channels in whole words");
  const Launch shape{.blocks = ceil_div<int64_t>(args.tokens * args.groups, plan.rows_per_block()),
                     .threads = plan.threads,
                     .early = true};
  const bool words = plan.vector == 8;
  launch("norm",
         plan.chunks == 1   ? (words ? norm_kernel<8, 1> : norm_kernel<1, 1>)
         : plan.chunks == 4 ? (words ? norm_kernel<8, 4> : norm_kernel<1, 4>)
                            : norm_long_kernel,
         shape, args, plan);
}

}  // namespace tessera::kernels::cuda

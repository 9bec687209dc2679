#include "kernels/cuda/routing.cuh"
#include "kernels/device_error.h"
#include "kernels/sampling.h"

namespace tessera::kernels::cuda {
namespace {

__device__ inline float at(const FloatRows& rows, int64_t t, int64_t j) {
  return rows.data[t * rows.stride + j];
}

__global__ void __launch_bounds__(kSpreadThreads) linear_step_kernel(LinearStepArgs a) {
  for (int64_t i = first_piece(); i < a.rows * a.columns; i += piece_step()) {
    const int64_t t = i / a.columns, j = i % a.columns;
    const double x = at(a.x, t, j), out = at(a.prediction, t, j);
    double guess = a.by.from_x * x + a.by.from_out * out;
    guess = guess < -a.by.clip ? -a.by.clip : a.by.clip < guess ? a.by.clip : guess;
    double sum = a.by.x * x + a.by.out * out + a.by.estimates[0] * guess;
    if (a.by.estimates[1] != 0) sum += a.by.estimates[1] * double(at(a.earlier[0], t, j));
    if (a.by.estimates[2] != 0) sum += a.by.estimates[2] * double(at(a.earlier[1], t, j));
    if (a.by.estimates[3] != 0) sum += a.by.estimates[3] * double(at(a.earlier[2], t, j));
    if (a.by.noise != 0) sum += a.by.noise * double(at(a.noise, t, j));
    a.next[i] = static_cast<float>(sum);
    if (a.estimate) a.estimate[i] = static_cast<float>(guess);
  }
}

__global__ void __launch_bounds__(kSpreadThreads)
    learned_range_step_kernel(LearnedRangeStepArgs a) {
  for (int64_t i = first_piece(); i < a.rows * a.columns; i += piece_step()) {
    const int64_t t = i / a.columns, j = i % a.columns;
    const float x = at(a.x, t, j);
    const float x0 = a.by.recip * x - a.by.recipm1 * at(a.prediction, t, j);
    const float share = (at(a.prediction, t, a.columns + j) + 1) / 2;
    const float log_variance = share * a.by.log_beta + (1 - share) * a.by.log_posterior;
    float next = a.by.mean_x0 * x0 + a.by.mean_x * x;
    if (a.noise.data) next += expf(0.5f * log_variance) * at(a.noise, t, j);
    a.next[i] = next;
  }
}

__global__ void __launch_bounds__(kSpreadThreads) flow_step_kernel(FlowStepArgs a) {
  for (int64_t i = first_piece(); i < a.rows * a.columns; i += piece_step()) {
    const int64_t t = i / a.columns, j = i % a.columns;
    a.next[i] = at(a.x, t, j) - at(a.velocity, t, j) * a.size;
  }
}

__global__ void __launch_bounds__(kSpreadThreads) guide_kernel(GuideArgs a) {
  for (int64_t i = first_piece(); i < a.rows * a.columns; i += piece_step()) {
    const int64_t t = i / a.columns, j = i % a.columns;
    const float c = at(a.cond, t, j), u = at(a.uncond, t, j);
    a.y[i] = j < a.guided ? u + a.scale * (c - u) : c;
  }
}

// Logits of a block, a fixed number for each thread.
constexpr int kPeakEach = 32, kPeakPart = kPeakEach * kSpreadThreads;

// Base of the exponents; if all logits are minus infinity, the exponentials are all zero.
__device__ inline double base_of(float largest) {
  return largest == -INFINITY ? -3.4028234663852886e38 : double{largest};
}

// Computes the peaks of parts [rows, parts].
__global__ void __launch_bounds__(kSpreadThreads)
    peak_parts_kernel(PeaksArgs a, int64_t parts, Peak* peaks) {
  constexpr int kWarps = kSpreadThreads / kWarp;
  __shared__ float largest[kWarps];
  __shared__ int index[kWarps];
  __shared__ double sums[kWarps];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  const float* logits = a.logits.data + blockIdx.x / parts * a.logits.stride;
  const int64_t first = blockIdx.x % parts * kPeakPart + thread;
  float v[kPeakEach];
  Best best{-INFINITY, static_cast<int>(a.count)};
  TESSERA_UNROLL
  for (int j = 0; j < kPeakEach; ++j) {
    const int64_t i = first + j * kSpreadThreads;
    v[j] = i < a.count && i != a.except ? logits[i] : -INFINITY;
    if (v[j] > best.value) best = {v[j], static_cast<int>(i)};
  }
  best = best_of_warp(best);
  if (lane == 0) {
    largest[warp] = best.value;
    index[warp] = best.index;
  }
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) best = better(best, {largest[w], index[w]});
  const double base = base_of(best.value);
  double sum = 0;
  TESSERA_UNROLL
  for (int j = 0; j < kPeakEach; ++j) sum += exp(double{v[j]} - base);
  sum = sum_of_warp(sum);
  if (lane == 0) sums[warp] = sum;
  __syncthreads();
  if (thread != 0) return;
  for (int w = 1; w < kWarps; ++w) sum += sums[w];
  peaks[blockIdx.x] = {best.index, sum, best.value};
}

// Merges the parts of a row, a row for each warp.
__global__ void __launch_bounds__(kSpreadThreads)
    merge_peaks_kernel(PeaksArgs a, int64_t parts, const Peak* peaks) {
  const int64_t row = first_piece() / kWarp;
  if (row >= a.rows) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const Peak* row_peaks = peaks + row * parts;
  Best best{-INFINITY, static_cast<int>(a.count)};
  for (int64_t part = lane; part < parts; part += kWarp)
    best = better(best, {row_peaks[part].largest, static_cast<int>(row_peaks[part].index)});
  best = best_of_warp(best);
  const double base = base_of(best.value);
  double sum = 0;
  for (int64_t part = lane; part < parts; part += kWarp)
    sum += row_peaks[part].sum * exp(double{row_peaks[part].largest} - base);
  sum = sum_of_warp(sum);
  if (lane == 0) a.peaks[row] = {best.index < a.count ? best.index : 0, sum, best.value};
}

}  // namespace

void linear_step(const LinearStepArgs& args) {
  launch("linear_step", linear_step_kernel, spread(args.rows * args.columns), args);
}

void learned_range_step(const LearnedRangeStepArgs& args) {
  launch("learned_range_step", learned_range_step_kernel, spread(args.rows * args.columns), args);
}

void flow_step(const FlowStepArgs& args) {
  launch("flow_step", flow_step_kernel, spread(args.rows * args.columns), args);
}

void guide(const GuideArgs& args) {
  launch("guide", guide_kernel, spread(args.rows * args.columns), args);
}

void peaks(const PeaksArgs& args) {
  if (args.count > 0x7fffffff) unsupported("peaks", "logits", args.count, "at most 2147483647");
  const int64_t parts = ceil_div<int64_t>(args.count > 0 ? args.count : 1, kPeakPart);
  const Scratch part_peaks(args.rows * parts * static_cast<int64_t>(sizeof(Peak)));
  launch("peaks", peak_parts_kernel, Launch{.blocks = args.rows * parts, .threads = kSpreadThreads},
         args, parts, part_peaks.as<Peak>());
  launch("peaks", merge_peaks_kernel, spread(args.rows * kWarp), args, parts,
         static_cast<const Peak*>(part_peaks.as<Peak>()));
}

}  // namespace tessera::kernels::cuda

#include "kernels/cuda/launch.cuh"
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

}  // namespace tessera::kernels::cuda

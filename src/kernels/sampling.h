#pragma once

#include <array>
#include <cstdint>
#include <limits>

namespace tessera::kernels {

/// Input rows of f32 for a step; the stride is in elements.
struct FloatRows {
  const float* data = nullptr;
  int64_t stride = 0;
};

/// Coefficients of a linear solver step: estimate = from_x * x + from_out * prediction, clipped to
/// [-clip, clip]; next = x * x + out * prediction + estimates[0] * estimate + estimates[1] *
/// previous estimate + ... + noise * noise. Inputs with a zero coefficient are not read, except for
/// x and the prediction.
struct LinearStepCoefficients {
  double from_x = 0, from_out = 0;
  double clip = std::numeric_limits<double>::infinity();
  double x = 0, out = 0;
  std::array<double, 4> estimates{};
  double noise = 0;
};

/// Linear step over [rows, columns], in f64; `next` and `estimate` are dense.
struct LinearStepArgs {
  LinearStepCoefficients by;
  FloatRows x, prediction, noise;
  std::array<FloatRows, 3> earlier;  ///< estimates of the previous step, of the step before, ...
  float* next = nullptr;
  float* estimate = nullptr;  ///< null: not needed
  int64_t rows = 0, columns = 0;
};

/// Coefficients of a DDPM step with learned-range variance: x0 = recip * x - recipm1 * eps.
struct LearnedRangeCoefficients {
  float recip = 0, recipm1 = 0;
  float mean_x0 = 0, mean_x = 0;
  float log_beta = 0, log_posterior = 0;
};

/// next = mean_x0 * x0 + mean_x * x + noise * exp(v / 2), v between the two logarithms by sigma in
/// [-1, 1]; prediction [rows, 2 * columns] is [eps | sigma]; in f32.
struct LearnedRangeStepArgs {
  LearnedRangeCoefficients by;
  FloatRows x, prediction;
  FloatRows noise;  ///< null: no noise
  float* next = nullptr;
  int64_t rows = 0, columns = 0;
};

/// next = x - velocity * size, in f32.
struct FlowStepArgs {
  float size = 0;
  FloatRows x, velocity;
  float* next = nullptr;
  int64_t rows = 0, columns = 0;
};

/// y = uncond + scale * (cond - uncond) in the first `guided` columns, cond in the others; in f32.
struct GuideArgs {
  float scale = 1;
  FloatRows cond, uncond;
  float* y = nullptr;
  int64_t rows = 0, columns = 0, guided = 0;
};

/// The largest of some logits and the sum of exp(x - largest): the softmax of a logit x is exp(x -
/// largest) / sum.
struct Peak {
  int64_t index = 0;  ///< ties: the first
  double sum = 0;
  float largest = 0;
};

/// Peaks of each row's `count` logits except column `except` (negative: none), in f64. NaN is never
/// the largest, and makes the sum NaN; if all are NaN, `index` is 0 and `largest` minus infinity.
struct PeaksArgs {
  FloatRows logits;
  int64_t rows = 0, count = 0, except = -1;
  Peak* peaks = nullptr;  ///< [rows]
};

namespace reference {
/// Plain loops: the definition of correct results, on every instruction set.
void linear_step(const LinearStepArgs& args);
void learned_range_step(const LearnedRangeStepArgs& args);
void flow_step(const FlowStepArgs& args);
void guide(const GuideArgs& args);
void peaks(const PeaksArgs& args);
}  // namespace reference
/// A single pass over the logits; the sum is rescaled for each new maximum (Milakov & Gimelshein
/// 2018).
namespace avx2 {
void peaks(const PeaksArgs& args);
}  // namespace avx2
namespace avx512 {
void peaks(const PeaksArgs& args);
}  // namespace avx512
namespace cuda {
/// Each thread computes an element.
void linear_step(const LinearStepArgs& args);
void learned_range_step(const LearnedRangeStepArgs& args);
void flow_step(const FlowStepArgs& args);
void guide(const GuideArgs& args);
/// A block reduces part of a row, then a warp reduces a row.
void peaks(const PeaksArgs& args);
}  // namespace cuda

}  // namespace tessera::kernels

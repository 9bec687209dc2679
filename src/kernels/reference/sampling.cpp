#include "kernels/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/scope.h"

namespace tessera::kernels::reference {
namespace {

// Calls f(t, j) for every element.
template <class F>
void each(int64_t rows, int64_t columns, F f) {
  const int64_t grain = columns > 0 ? 1 + 8192 / columns : 1;
  tensor::parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t j = 0; j < columns; ++j) f(t, j);
  });
}

float at(const FloatRows& rows, int64_t t, int64_t j) { return rows.data[t * rows.stride + j]; }

}  // namespace

void linear_step(const LinearStepArgs& args) {
  const LinearStepCoefficients& by = args.by;
  each(args.rows, args.columns, [&](int64_t t, int64_t j) {
    const double x = at(args.x, t, j), out = at(args.prediction, t, j);
    const double guess = std::clamp(by.from_x * x + by.from_out * out, -by.clip, by.clip);
    double sum = by.x * x + by.out * out + by.estimates[0] * guess;
    for (size_t back = 1; back < by.estimates.size(); ++back)
      if (by.estimates[back] != 0)
        sum += by.estimates[back] * double(at(args.earlier[back - 1], t, j));
    if (by.noise != 0) sum += by.noise * double(at(args.noise, t, j));
    args.next[t * args.columns + j] = static_cast<float>(sum);
    if (args.estimate) args.estimate[t * args.columns + j] = static_cast<float>(guess);
  });
}

void learned_range_step(const LearnedRangeStepArgs& args) {
  const LearnedRangeCoefficients& by = args.by;
  each(args.rows, args.columns, [&](int64_t t, int64_t j) {
    const float x = at(args.x, t, j);
    const float x0 = by.recip * x - by.recipm1 * at(args.prediction, t, j);
    const float share = (at(args.prediction, t, args.columns + j) + 1) / 2;
    const float log_variance = share * by.log_beta + (1 - share) * by.log_posterior;
    args.next[t * args.columns + j] =
        by.mean_x0 * x0 + by.mean_x * x +
        (args.noise.data ? std::exp(0.5f * log_variance) * at(args.noise, t, j) : 0.0f);
  });
}

void flow_step(const FlowStepArgs& args) {
  each(args.rows, args.columns, [&](int64_t t, int64_t j) {
    args.next[t * args.columns + j] = at(args.x, t, j) - at(args.velocity, t, j) * args.size;
  });
}

void guide(const GuideArgs& args) {
  each(args.rows, args.columns, [&](int64_t t, int64_t j) {
    const float c = at(args.cond, t, j), u = at(args.uncond, t, j);
    args.y[t * args.columns + j] = j < args.guided ? u + args.scale * (c - u) : c;
  });
}

void peaks(const PeaksArgs& a) {
  for (int64_t t = 0; t < a.rows; ++t) {
    Peak y{0, 0, -std::numeric_limits<float>::infinity()};
    for (int64_t i = 0; i < a.count; ++i)
      if (i != a.except && at(a.logits, t, i) > y.largest) {
        y.largest = at(a.logits, t, i);
        y.index = i;
      }
    for (int64_t i = 0; i < a.count; ++i)
      if (i != a.except) y.sum += std::exp(double(at(a.logits, t, i)) - double(y.largest));
    a.peaks[t] = y;
  }
}

}  // namespace tessera::kernels::reference

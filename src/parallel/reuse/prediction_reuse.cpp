#include "parallel/reuse/prediction_reuse.h"

#include <cmath>

#include "ops/elementwise.h"
#include "parallel/reuse/attention_reuse.h"

namespace tessera::parallel {

using tensor::Tensor;

Tensor PredictionReuse::predicted() {
  const Tensor expected = run_.meta ? Tensor() : predict();
  if (expected.defined())
    skip_pass(cost_);
  else
    begun_ = flops_now();
  return expected;
}

void PredictionReuse::keep(const Tensor& prediction) {
  cost_ = flops_now() - begun_;
  learn(prediction);
}

Tensor TaylorPrediction::predict() {
  return taylor_computes(cache_, step()) ? Tensor() : taylor_.at(step());
}

double DriftReuse::length(int step) const {
  const double last = step + 1 < steps() ? time(step + 1) : 0;
  const double whole = std::abs(time(0)), own = std::abs(time(step) - last);
  return whole > 0 ? own / whole * steps() : 1;
}

// Through both nodes.
Tensor DriftReuse::line(double time) const {
  const Node &a = nodes_.front(), &b = nodes_.back();
  const auto by = static_cast<float>((time - b.time) / (b.time - a.time));
  return ops::blend(b.value, 1 + by, a.value, -by);
}

Tensor DriftReuse::predict() {
  if (curvature_ < 0 || reused_ >= cache_.max_skip) return {};
  const double now = time(step()), gap = std::abs(nodes_.back().time - nodes_.front().time);
  const double away = std::abs(now - nodes_.back().time);
  const double error = curvature_ * away * (away + gap) * length(step());
  log_.changes.back() = sum_ + error;
  if (!(sum_ + error < cache_.threshold)) return {};
  sum_ += error;
  ++reused_;
  return line(now);
}

void DriftReuse::learn(const Tensor& prediction) {
  const double now = time(step());
  if (nodes_.size() == 2) {
    const double gap = std::abs(nodes_.back().time - nodes_.front().time);
    const double away = std::abs(now - nodes_.back().time);
    const double error =
        change({.prefix = {}, .body = line(now)}, {.prefix = {}, .body = prediction});
    curvature_ = away > 0 ? error / (away * (away + gap)) : -1;
    nodes_.erase(nodes_.begin());
  }
  if (nodes_.empty() || nodes_.back().time != now) nodes_.push_back({now, prediction});
  sum_ = 0;
  reused_ = 0;
}

}  // namespace tessera::parallel

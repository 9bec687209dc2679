#include "sample/linear_sampler.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "base/fail.h"
#include "ops/sampling.h"

namespace tessera::sample {
namespace {

// A quantile of values, with linear interpolation between neighbours.
float quantile_of(std::vector<float>& values, double quantile) {
  const double place = quantile * double(values.size() - 1);
  const auto low = static_cast<size_t>(place);
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(low);
  std::nth_element(values.begin(), at, values.end());
  if (low + 1 >= values.size()) return *at;
  const float above = *std::min_element(at + 1, values.end());
  return *at + static_cast<float>(place - double(low)) * (above - *at);
}

// Runs on the host; waits for a GPU.
Tensor thresholded(const Tensor& estimate, const Clip& clip) {
  if (estimate.is_meta()) return estimate;
  require(clip.tokens > 0 && estimate.size(0) % clip.tokens == 0, ErrorCode::usage,
          "dynamic thresholding needs whole samples of {} tokens, got {}", clip.tokens,
          estimate.size(0));
  const std::vector<float> values = estimate.to_floats();
  const Tensor y = Tensor::from(std::span<const float>(values), estimate.shape());
  const int64_t count = clip.tokens * y.size(1);
  for (int64_t begin = 0; begin < y.size(0); begin += clip.tokens) {
    const std::span<float> sample(y.row<float>(begin), static_cast<size_t>(count));
    std::vector<float> sizes(sample.size());
    std::ranges::transform(sample, sizes.begin(), [](float v) { return std::abs(v); });
    const float s =
        std::min(std::max(quantile_of(sizes, clip.quantile), 1.0f), static_cast<float>(clip.most));
    for (float& v : sample) v = std::clamp(v, -s, s) / s;
  }
  return y.to(estimate.device());
}

}  // namespace

LinearSampler::LinearSampler(std::vector<LinearStep> steps, double initial_scale, Clip clip)
    : steps_(std::move(steps)), initial_scale_(initial_scale), clip_(clip) {
  for (const LinearStep& s : steps_)
    for (size_t back = 1; back < s.x0.size(); ++back)
      if (s.x0[back] != 0) memory_ = std::max(memory_, back);
}

Tensor LinearSampler::step(int i, const Tensor& prediction, const Tensor& x, const Tensor& noise,
                           History& history) const {
  const LinearStep& s = at(i);
  ops::LinearStepCoefficients by{.from_x = s.from_x,
                                 .from_out = s.from_out,
                                 .clip = clip_.bound,
                                 .x = s.x,
                                 .out = s.out,
                                 .estimates = s.x0,
                                 .noise = s.noise};
  Tensor next, estimate;
  if (clip_.quantile > 0) {  // all but the estimates; then those, the thresholded first
    by.estimates = {};
    const auto first = ops::linear_step(x, prediction, {}, noise, by, true);
    const auto second =
        ops::linear_step(first.next, thresholded(first.estimate, clip_), history.outputs, {},
                         {.from_out = 1, .x = 1, .estimates = s.x0}, memory_ > 0);
    next = second.next, estimate = second.estimate;
  } else {
    const auto whole = ops::linear_step(x, prediction, history.outputs, noise, by, memory_ > 0);
    next = whole.next, estimate = whole.estimate;
  }
  if (memory_ > 0) {
    history.outputs.push_back(estimate);
    if (history.outputs.size() > memory_) history.outputs.erase(history.outputs.begin());
  }
  return next;
}

std::unique_ptr<Sampler> predicting_sampler(const Sampler& sampler) {
  auto predicting = std::make_unique<LinearSampler>(dynamic_cast<const LinearSampler&>(sampler));
  for (LinearStep& s : predicting->steps_) {
    s.x = s.out = s.noise = 0;
    s.x0 = {1};
  }
  return predicting;
}

std::unique_ptr<Sampler> without_first(const Sampler& sampler, int count) {
  auto rest = std::make_unique<LinearSampler>(dynamic_cast<const LinearSampler&>(sampler));
  rest->steps_.erase(rest->steps_.begin(), rest->steps_.begin() + count);
  for (size_t i = 0; i < rest->steps_.size(); ++i)
    for (size_t back = i + 1; back < rest->steps_[i].x0.size(); ++back)
      require(rest->steps_[i].x0[back] == 0, ErrorCode::usage,
              "this scheduler cannot leave out {} of its steps: use another `strength` or "
              "`scheduler`",
              count);
  return rest;
}

}  // namespace tessera::sample

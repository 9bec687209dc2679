#include "sample/linear_sampler.h"

#include <algorithm>
#include <utility>

#include "ops/sampling.h"

namespace tessera::sample {

LinearSampler::LinearSampler(std::vector<LinearStep> steps, double initial_scale, double clip)
    : steps_(std::move(steps)), initial_scale_(initial_scale), clip_(clip) {
  for (const LinearStep& s : steps_)
    for (size_t back = 1; back < s.x0.size(); ++back)
      if (s.x0[back] != 0) memory_ = std::max(memory_, back);
}

Tensor LinearSampler::step(int i, const Tensor& prediction, const Tensor& x, const Tensor& noise,
                           History& history) const {
  const LinearStep& s = at(i);
  auto [next, estimate] = ops::linear_step(x, prediction, history.outputs, noise,
                                           {.from_x = s.from_x,
                                            .from_out = s.from_out,
                                            .clip = clip_,
                                            .x = s.x,
                                            .out = s.out,
                                            .estimates = s.x0,
                                            .noise = s.noise},
                                           memory_ > 0);
  if (memory_ > 0) {
    history.outputs.push_back(estimate);
    if (history.outputs.size() > memory_) history.outputs.erase(history.outputs.begin());
  }
  return next;
}

}  // namespace tessera::sample

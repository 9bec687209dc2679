#include "sample/linear_sampler.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"

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
  Tensor next = Tensor::empty(x.shape(), tensor::DType::f32, x.device());
  Tensor estimate = Tensor::empty(x.shape(), tensor::DType::f32, x.device());
  if (x.is_meta()) return next;
  require(prediction.size(0) == x.size(0) && prediction.size(1) >= x.size(1), ErrorCode::usage,
          "step {}: a prediction {} for a latent {}", i, prediction.shape().str(), x.shape().str());
  require(s.noise == 0 || noise.defined(), ErrorCode::usage, "step {} needs noise", i);
  for (int64_t t = 0; t < x.size(0); ++t) {
    const float *z = x.row<float>(t), *out = prediction.row<float>(t);
    const float* n = s.noise != 0 ? noise.row<float>(t) : nullptr;
    float *to = next.row<float>(t), *x0 = estimate.row<float>(t);
    for (int64_t j = 0; j < x.size(1); ++j) {
      const double guess =
          std::clamp(s.from_x * double(z[j]) + s.from_out * double(out[j]), -clip_, clip_);
      x0[j] = static_cast<float>(guess);
      double sum = s.x * double(z[j]) + s.out * double(out[j]) + s.x0[0] * guess;
      for (size_t back = 1; back < s.x0.size(); ++back)
        if (s.x0[back] != 0)
          sum += s.x0[back] *
                 double(history.outputs.at(history.outputs.size() - back).row<float>(t)[j]);
      if (n) sum += s.noise * double(n[j]);
      to[j] = static_cast<float>(sum);
    }
  }
  if (memory_ > 0) {
    history.outputs.push_back(estimate);
    if (history.outputs.size() > memory_) history.outputs.erase(history.outputs.begin());
  }
  return next;
}

}  // namespace tessera::sample

#include "base/fail.h"
#include "ops/sampling.h"
#include "sample/sampler.h"

namespace tessera::sample {
namespace {

class RectifiedFlow : public Sampler {
 public:
  explicit RectifiedFlow(int steps) : steps_(steps) {
    require(steps >= 1 && steps <= 100000, ErrorCode::usage,
            "{} steps were asked for; give a number from 1 to 100000", steps);
  }
  int steps() const override { return steps_; }
  float timestep(int i) const override {
    return static_cast<float>(double(steps_ - i) / double(steps_));
  }
  float last_timestep() const override { return 1; }
  bool needs_noise(int) const override { return false; }
  Tensor step(int, const Tensor& prediction, const Tensor& x, const Tensor&,
              History&) const override {
    return ops::flow_step(x, prediction, 1.0f / static_cast<float>(steps_));
  }

 private:
  int steps_;
};

}  // namespace

std::unique_ptr<Sampler> rectified_flow(int steps) {
  return std::make_unique<RectifiedFlow>(steps);
}

}  // namespace tessera::sample

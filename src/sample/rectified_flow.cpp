#include "base/fail.h"
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
  bool needs_noise(int) const override { return false; }
  Tensor step(int, const Tensor& prediction, const Tensor& x, const Tensor&,
              History&) const override {
    Tensor next = Tensor::empty(x.shape(), tensor::DType::f32, x.device());
    if (x.is_meta()) return next;
    const float size = 1.0f / static_cast<float>(steps_);
    for (int64_t t = 0; t < x.size(0); ++t) {
      const float *v = prediction.row<float>(t), *z = x.row<float>(t);
      float* to = next.row<float>(t);
      for (int64_t i = 0; i < x.size(1); ++i) to[i] = z[i] - v[i] * size;
    }
    return next;
  }

 private:
  int steps_;
};

}  // namespace

std::unique_ptr<Sampler> rectified_flow(int steps) {
  return std::make_unique<RectifiedFlow>(steps);
}

}  // namespace tessera::sample

#include <cmath>

#include "base/fail.h"
#include "sample/sampler.h"

namespace tessera::sample {
namespace {

constexpr int kTrained = 1000;

// Per step, in sampling order: everything that depends on the betas alone.
struct Coefficients {
  int timestep;
  float recip, recipm1;  // x0 = recip * x - recipm1 * eps
  float mean_x0, mean_x;
  float log_beta, log_posterior;
};

std::vector<Coefficients> coefficients(int steps) {
  std::vector<double> cumulative(kTrained);
  double product = 1;
  for (int i = 0; i < kTrained; ++i) {
    product *= 1 - (1e-4 + (0.02 - 1e-4) * i / (kTrained - 1));
    cumulative[static_cast<size_t>(i)] = product;
  }
  std::vector<int> kept;
  for (int j = 0; j < steps; ++j)
    kept.push_back(
        steps == 1 ? 0
                   : static_cast<int>(std::nearbyint(double(j) * (kTrained - 1) / (steps - 1))));
  std::vector<double> variance(static_cast<size_t>(steps));
  std::vector<Coefficients> all(static_cast<size_t>(steps));
  double before = 1;
  for (int j = 0; j < steps; ++j) {
    const double now = cumulative[static_cast<size_t>(kept[static_cast<size_t>(j)])];
    const double beta = 1 - now / before, posterior = beta * (1 - before) / (1 - now);
    variance[static_cast<size_t>(j)] = posterior;
    Coefficients& c = all[static_cast<size_t>(steps - 1 - j)];
    c.timestep = kept[static_cast<size_t>(j)];
    c.recip = static_cast<float>(std::sqrt(1 / now));
    c.recipm1 = static_cast<float>(std::sqrt(1 / now - 1));
    c.mean_x0 = static_cast<float>(beta * std::sqrt(before) / (1 - now));
    c.mean_x = static_cast<float>((1 - before) * std::sqrt(1 - beta) / (1 - now));
    c.log_beta = static_cast<float>(std::log(beta));
    c.log_posterior = static_cast<float>(std::log(posterior));
    before = now;
  }
  // The first posterior variance is zero: the second stands in for its logarithm.
  all.back().log_posterior =
      steps > 1 ? static_cast<float>(std::log(variance[1])) : all.back().log_beta;
  return all;
}

class Ddpm : public Sampler {
 public:
  explicit Ddpm(int steps) {
    require(steps >= 1 && steps <= kTrained, ErrorCode::usage,
            "{} steps were asked for; this sampler takes 1 to {}", steps, kTrained);
    coefficients_ = coefficients(steps);
  }
  int steps() const override { return static_cast<int>(coefficients_.size()); }
  float timestep(int i) const override { return static_cast<float>(at(i).timestep); }
  bool needs_noise(int i) const override { return i + 1 < steps(); }

  Tensor step(int i, const Tensor& prediction, const Tensor& x, const Tensor& noise,
              History&) const override {
    require(prediction.size(1) == 2 * x.size(1), ErrorCode::usage,
            "DDPM with learned variance needs {} predicted columns, the model gives {}",
            2 * x.size(1), prediction.size(1));
    Tensor next = Tensor::empty(x.shape(), tensor::DType::f32, x.device());
    if (x.is_meta()) return next;
    const Coefficients& c = at(i);
    const int64_t width = x.size(1);
    for (int64_t t = 0; t < x.size(0); ++t) {
      const float *eps = prediction.row<float>(t), *sigma = eps + width, *z = x.row<float>(t);
      const float* n = needs_noise(i) ? noise.row<float>(t) : nullptr;
      float* to = next.row<float>(t);
      for (int64_t j = 0; j < width; ++j) {
        const float x0 = c.recip * z[j] - c.recipm1 * eps[j];
        const float share = (sigma[j] + 1) / 2;
        const float log_variance = share * c.log_beta + (1 - share) * c.log_posterior;
        to[j] =
            c.mean_x0 * x0 + c.mean_x * z[j] + (n ? std::exp(0.5f * log_variance) * n[j] : 0.0f);
      }
    }
    return next;
  }

 private:
  const Coefficients& at(int i) const { return coefficients_.at(static_cast<size_t>(i)); }
  std::vector<Coefficients> coefficients_;
};

}  // namespace

std::unique_ptr<Sampler> ddpm_learned_range(int steps) { return std::make_unique<Ddpm>(steps); }

}  // namespace tessera::sample

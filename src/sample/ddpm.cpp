#include <cmath>

#include "base/fail.h"
#include "ops/sampling.h"
#include "sample/sampler.h"

namespace tessera::sample {
namespace {

constexpr int kTrained = 1000;

// Per step, in sampling order: all coefficients of the betas alone.
struct Coefficients {
  int timestep;
  ops::LearnedRangeCoefficients by;
};

std::vector<Coefficients> coefficients(int steps) {
  std::vector<double> cumulative(kTrained);
  double product = 1;
  for (int i = 0; i < kTrained; ++i) {
    product *= 1 - (1e-4 + (0.02 - 1e-4) * i / (kTrained - 1));
    cumulative[static_cast<size_t>(i)] = product;
  }
  std::vector<int> timesteps;
  for (int j = 0; j < steps; ++j)
    timesteps.push_back(
        steps == 1 ? 0
                   : static_cast<int>(std::nearbyint(double(j) * (kTrained - 1) / (steps - 1))));
  std::vector<double> variance(static_cast<size_t>(steps));
  std::vector<Coefficients> result(static_cast<size_t>(steps));
  double before = 1;
  for (int j = 0; j < steps; ++j) {
    const double now = cumulative[static_cast<size_t>(timesteps[static_cast<size_t>(j)])];
    const double beta = 1 - now / before, posterior = beta * (1 - before) / (1 - now);
    variance[static_cast<size_t>(j)] = posterior;
    Coefficients& c = result[static_cast<size_t>(steps - 1 - j)];
    c.timestep = timesteps[static_cast<size_t>(j)];
    c.by.recip = static_cast<float>(std::sqrt(1 / now));
    c.by.recipm1 = static_cast<float>(std::sqrt(1 / now - 1));
    c.by.mean_x0 = static_cast<float>(beta * std::sqrt(before) / (1 - now));
    c.by.mean_x = static_cast<float>((1 - before) * std::sqrt(1 - beta) / (1 - now));
    c.by.log_beta = static_cast<float>(std::log(beta));
    c.by.log_posterior = static_cast<float>(std::log(posterior));
    before = now;
  }
  // The first posterior variance is zero; its logarithm is replaced by the second's.
  result.back().by.log_posterior =
      steps > 1 ? static_cast<float>(std::log(variance[1])) : result.back().by.log_beta;
  return result;
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
    require(!needs_noise(i) || noise.defined(), ErrorCode::usage, "step {} needs noise", i);
    return ops::learned_range_step(x, prediction, needs_noise(i) ? noise : Tensor(), at(i).by);
  }

 private:
  const Coefficients& at(int i) const { return coefficients_.at(static_cast<size_t>(i)); }
  std::vector<Coefficients> coefficients_;
};

}  // namespace

std::unique_ptr<Sampler> ddpm_learned_range(int steps) { return std::make_unique<Ddpm>(steps); }

}  // namespace tessera::sample

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "sample/scheduler.h"
#include "sample/solver_path.h"

namespace tessera::sample {
namespace {

// Antiderivatives of Lagrange polynomials in log rho (Zhang & Chen 2023); the polynomial is 1 at
// `b` and 0 at the other nodes.
double linear_integral(double t, double b, double c) {
  return t * (-std::log(c) + std::log(t) - 1) / (std::log(b) - std::log(c));
}
double quadratic_integral(double t, double b, double c, double d) {
  const double lc = std::log(c), ld = std::log(d), lt = std::log(t);
  return t * (lc * (ld - lt + 1) - ld * lt + ld + lt * lt - 2 * lt + 2) /
         ((std::log(b) - lc) * (std::log(b) - ld));
}

// The step from place i to i + 1; the history keeps the noise of earlier steps.
LinearStep solve(const SolverPath& path, size_t i, int order) {
  const auto rho = [&](size_t at) { return path.sigma(at) / path.alpha(at); };
  const double alpha = path.alpha(i + 1), to = rho(i + 1), r0 = rho(i);
  LinearStep step{.x = alpha / path.alpha(i)};
  if (order == 1) {
    step.x0 = {alpha * (to - r0)};
    return step;
  }
  const double r1 = rho(i - 1);
  if (order == 2) {
    step.x0 = {alpha * (linear_integral(to, r0, r1) - linear_integral(r0, r0, r1)),
               alpha * (linear_integral(to, r1, r0) - linear_integral(r0, r1, r0))};
    return step;
  }
  const double r2 = rho(i - 2);
  const auto share = [&](double b, double c, double d) {
    return alpha * (quadratic_integral(to, b, c, d) - quadratic_integral(r0, b, c, d));
  };
  step.x0 = {share(r0, r1, r2), share(r1, r2, r0), share(r2, r0, r1)};
  return step;
}

}  // namespace

std::unique_ptr<Sampler> deis(const base::ConfigReader& reader, const ScheduleRequest& request) {
  reader.refuse("thresholding", "dynamic thresholding in this class");
  reader.choice("algorithm_type", "deis", {"deis", "dpmsolver", "dpmsolver++"});
  reader.choice("solver_type", "logrho", {"logrho", "midpoint", "heun", "bh1", "bh2"});
  const auto most = static_cast<int>(reader.integer("solver_order", 2, 1, 3));
  const SolverPath path = solver_path(reader, request, SolverClass::deis);
  const PredictionType prediction = read_path_prediction(reader, path);
  const auto n = static_cast<int>(path.times.size());
  const bool few = reader.flag("lower_order_final", true) && request.steps < 15;
  std::vector<LinearStep> steps;
  for (int i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(i);
    LinearStep step = solve(path, at, std::min({most, i + 1, few ? n - i : most}));
    const FromPair noise = noise_of(prediction, path.alpha(at), path.sigma(at));
    step.timestep = path.times[at];
    step.before = path.noised(at);
    step.from_x = noise.x, step.from_out = noise.out;
    steps.push_back(step);
  }
  return std::make_unique<LinearSampler>(std::move(steps));
}

}  // namespace tessera::sample

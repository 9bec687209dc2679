#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "sample/noise_schedule.h"
#include "sample/prediction.h"
#include "sample/scheduler.h"

namespace tessera::sample {
namespace {

// Where the solver stops, and how it goes from one place to the next.
struct Path {
  bool flow = false;
  std::vector<double> times, sigmas;  // sigmas: one more than times
  double alpha(size_t i) const {
    return flow ? 1 - sigmas[i] : 1 / std::sqrt(sigmas[i] * sigmas[i] + 1);
  }
  double sigma(size_t i) const { return flow ? sigmas[i] : sigmas[i] * alpha(i); }
  double lambda(size_t i) const { return std::log(alpha(i)) - std::log(sigma(i)); }
};

std::vector<double> solver_times(const base::ConfigReader& read, int train_steps, int steps) {
  const std::string spacing =
      read.choice("timestep_spacing", "linspace", {"linspace", "leading", "trailing"});
  const int64_t offset = read.integer("steps_offset", 0, 0, 1000);
  check_steps(steps, train_steps);
  std::vector<double> times;
  if (spacing == "linspace") {
    const auto even = linspace(0, train_steps - 1, steps + 1);
    for (int i = steps; i > 0; --i) times.push_back(rounded(even[static_cast<size_t>(i)]));
  } else if (spacing == "leading") {
    const int64_t ratio = train_steps / (steps + 1);
    for (int i = steps; i > 0; --i)
      times.push_back(double(std::min<int64_t>(i * ratio + offset, train_steps - 1)));
  } else {
    for (int64_t t : spaced_timesteps(spacing, train_steps, steps, 0)) times.push_back(double(t));
  }
  return times;
}

Path flow_path(const base::ConfigReader& read, int train_steps, int steps) {
  Path path{.flow = true, .times = {}, .sigmas = {}};
  const double shift = read.positive("flow_shift", 1);
  const auto alphas = linspace(1, 1 / double(train_steps), steps + 1);
  for (int i = steps; i > 0; --i) {
    const double s = 1 - alphas[static_cast<size_t>(i)];
    path.sigmas.push_back(shift * s / (1 + (shift - 1) * s));
    path.times.push_back(std::trunc(path.sigmas.back() * train_steps));
  }
  return path;
}

Path make_path(const base::ConfigReader& read, int steps) {
  NoiseSchedule schedule = read_noise_schedule(read);
  // A last alpha of zero would be an infinite sigma.
  if (read.flag("rescale_betas_zero_snr", false)) schedule.alphas_cumprod.back() = std::pow(2, -24);
  const std::vector<double> all = schedule.sigmas();
  Path path;
  const bool karras = read.flag("use_karras_sigmas", false);
  const bool lu = read.flag("use_lu_lambdas", false);
  if (read.flag("use_flow_sigmas", false)) {
    path = flow_path(read, schedule.train_steps, steps);
  } else if (karras || lu || read.flag("use_exponential_sigmas", false)) {
    check_steps(steps, schedule.train_steps);
    // Evenly spaced log sigmas are evenly spaced lambdas (Lu et al. 2022, section 6).
    path.sigmas = karras ? karras_sigmas(all.back(), all.front(), steps)
                         : exponential_sigmas(all.back(), all.front(), steps);
    const bool whole =
        read.choice("beta_schedule", "linear", {"linear", "scaled_linear", "squaredcos_cap_v2"}) !=
        "squaredcos_cap_v2";
    for (double s : path.sigmas) {
      const double t = timestep_of_sigma(all, s);
      path.times.push_back(whole ? rounded(t) : std::trunc(t));
    }
  } else {
    path.times = solver_times(read, schedule.train_steps, steps);
    for (double t : path.times) path.sigmas.push_back(sigma_at(all, t));
  }
  const bool zero = read.choice("final_sigmas_type", "zero", {"zero", "sigma_min"}) == "zero";
  path.sigmas.push_back(zero ? 0 : (path.flow ? path.sigmas.back() : all.front()));
  for (double& s : path.sigmas) s = double(float(s));
  return path;
}

struct Solver {
  int order = 2;
  bool heun = false, stochastic = false;
};

// The step from place i to i + 1 by as many estimates as `order` says.
LinearStep solve(const Path& path, size_t i, int order, const Solver& solver) {
  const double alpha = path.alpha(i + 1), sigma = path.sigma(i + 1);
  const double h = path.lambda(i + 1) - path.lambda(i);
  const double grow = std::expm1(solver.stochastic ? -2 * h : -h);  // -1 where h is infinite
  LinearStep step;
  step.x = sigma / path.sigma(i);
  if (solver.stochastic) {
    step.x *= std::exp(-h);
    step.noise = sigma * std::sqrt(-grow);
    step.draws = 1;
  }
  step.x0[0] = -alpha * grow;
  if (order == 1) return step;
  const double r0 = (path.lambda(i) - path.lambda(i - 1)) / h;
  const double bend = alpha * (grow / (solver.stochastic ? 2 * h : h) + 1);
  if (order == 2) {
    const double slope = solver.heun ? bend : -0.5 * alpha * grow;
    step.x0[0] += slope / r0;
    step.x0[1] -= slope / r0;
    return step;
  }
  const double r1 = (path.lambda(i - 1) - path.lambda(i - 2)) / h;
  const double second = -alpha * ((grow + h) / (h * h) - 0.5);
  const double on_difference = (bend * r0 + second) / (r0 + r1);
  const double newer = bend + on_difference, older = -on_difference;
  step.x0[0] += newer / r0;
  step.x0[1] += older / r1 - newer / r0;
  step.x0[2] -= older / r1;
  return step;
}

Solver read_solver(const base::ConfigReader& read) {
  Solver solver;
  solver.order = static_cast<int>(read.integer("solver_order", 2, 1, 3));
  solver.heun = read.choice("solver_type", "midpoint", {"midpoint", "heun"}) == "heun";
  solver.stochastic = read.choice("algorithm_type", "dpmsolver++",
                                  {"dpmsolver++", "sde-dpmsolver++"}) == "sde-dpmsolver++";
  require(
      !solver.stochastic || solver.order < 3, ErrorCode::model,
      "{}: 'solver_order' 3 with 'algorithm_type' sde-dpmsolver++ is not supported; orders 1 and 2 "
      "are",
      read.where());
  return solver;
}

}  // namespace

std::unique_ptr<Sampler> dpm_solver(const base::ConfigReader& read,
                                    const ScheduleRequest& request) {
  read.refuse("thresholding", "dynamic thresholding");
  read.refuse("use_beta_sigmas", "a schedule by a beta distribution");
  read.refuse("use_dynamic_shifting", "a shift by the picture's size");
  require(read.number("lambda_min_clipped", -1e300) < -1e4, ErrorCode::model,
          "{}: 'lambda_min_clipped' is not supported; expected -Infinity", read.where());
  const Solver solver = read_solver(read);
  const Prediction prediction = read_prediction(read, true);
  const int n = request.steps;
  const Path path = make_path(read, n);
  require(path.flow == (prediction == Prediction::flow), ErrorCode::model,
          "{}: flow_prediction and use_flow_sigmas go together", read.where());
  const bool few = read.flag("lower_order_final", true) && n < 15;
  const bool zero = path.sigmas.back() == 0;
  std::vector<LinearStep> steps;
  for (int i = 0; i < n; ++i) {
    int order = std::min(solver.order, i + 1);
    if (i == n - 1 && (few || zero || read.flag("euler_at_final", false))) order = 1;
    if (i == n - 2 && few) order = std::min(order, 2);
    const size_t at = static_cast<size_t>(i);
    LinearStep step = solve(path, at, order, solver);
    const FromPair clean = clean_of(prediction, path.alpha(at), path.sigma(at));
    step.timestep = path.times[at];
    step.from_x = clean.x, step.from_out = clean.out;
    steps.push_back(step);
  }
  return std::make_unique<LinearSampler>(std::move(steps));
}

}  // namespace tessera::sample

#include <algorithm>
#include <cmath>

#include "sample/scheduler.h"
#include "sample/solver_path.h"

namespace tessera::sample {
namespace {

struct Solver {
  int order = 2;
  bool heun = false, stochastic = false;
};

// The step from place i to i + 1 by `order` estimates.
LinearStep solve(const SolverPath& path, size_t i, int order, const Solver& solver) {
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
  // The published stochastic solver adds half of its second term.
  const double second = solver.stochastic ? -alpha * ((grow + 2 * h) / (4 * h * h) + 0.5)
                                          : -alpha * ((grow + h) / (h * h) - 0.5);
  const double on_difference = (bend * r0 + second) / (r0 + r1);
  const double newer = bend + on_difference, older = -on_difference;
  step.x0[0] += newer / r0;
  step.x0[1] += older / r1 - newer / r0;
  step.x0[2] -= older / r1;
  return step;
}

Solver read_solver(const base::ConfigReader& reader) {
  Solver solver;
  solver.order = static_cast<int>(reader.integer("solver_order", 2, 1, 3));
  // Solver names of other classes select the default, as in diffusers when the class changes.
  solver.heun = reader.choice("solver_type", "midpoint",
                              {"midpoint", "heun", "logrho", "bh1", "bh2"}) == "heun";
  solver.stochastic =
      reader.choice("algorithm_type", "dpmsolver++", {"dpmsolver++", "sde-dpmsolver++", "deis"}) ==
      "sde-dpmsolver++";
  return solver;
}

}  // namespace

std::unique_ptr<Sampler> dpm_solver(const base::ConfigReader& reader,
                                    const ScheduleRequest& request) {
  const Solver solver = read_solver(reader);
  const SolverPath path = solver_path(reader, request, SolverClass::dpm_multistep);
  const int n = static_cast<int>(path.times.size());
  const PredictionType prediction = read_path_prediction(reader, path);
  const bool few = reader.flag("lower_order_final", true) && request.steps < 15;
  const bool zero = path.sigmas.back() == 0;
  std::vector<LinearStep> steps;
  for (int i = 0; i < n; ++i) {
    int order = std::min(solver.order, i + 1);
    if (i == n - 1 && (few || zero || reader.flag("euler_at_final", false))) order = 1;
    if (i == n - 2 && few) order = std::min(order, 2);
    const size_t at = static_cast<size_t>(i);
    LinearStep step = solve(path, at, order, solver);
    const FromPair clean = clean_of(prediction, path.alpha(at), path.sigma(at));
    step.timestep = path.times[at];
    step.before = path.noised(at);
    step.from_x = clean.x, step.from_out = clean.out;
    steps.push_back(step);
  }
  return std::make_unique<LinearSampler>(std::move(steps), 1,
                                         read_clip(reader, std::nullopt, request.tokens));
}

}  // namespace tessera::sample

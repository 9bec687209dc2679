#include <algorithm>
#include <cmath>

#include "sample/linear_form.h"
#include "sample/scheduler.h"
#include "sample/solver_path.h"

namespace tessera::sample {
namespace {

// Order of every step: 1, 2, 3, 1, 2, 3, ...; a step of order 1 restarts the history.
std::vector<int> orders_of(const base::ConfigReader& reader, int most, int n) {
  const bool zero = reader.choice("final_sigmas_type", "zero", {"zero", "sigma_min"}) == "zero";
  const bool lower = reader.flag("lower_order_final", false) || zero || n % most != 0;
  std::vector<int> orders;
  for (int i = 0; i < n; ++i) orders.push_back(i % most + 1);
  if (lower && most > 1 && n % most == 0) orders.back() = 1;
  if (zero) orders.back() = 1;
  return orders;
}

// To place i + 1 from the latent of place `begin` by the estimates since (Lu et al. 2022).
LinearForm solve(const SolverPath& path, size_t begin, size_t i, bool heun) {
  const double alpha = path.alpha(i + 1), start = path.lambda(begin);
  const double h = path.lambda(i + 1) - start, grow = std::expm1(-h);
  LinearForm to{path.sigma(i + 1) / path.sigma(begin), {}};
  to.estimates[begin] = -alpha * grow;
  if (i == begin) return to;
  const double bend = alpha * (grow / h + 1), r0 = (path.lambda(i) - start) / h;
  const LinearForm last{0, {{i, 1 / r0}, {begin, -1 / r0}}};  // first difference to the newest
  if (i == begin + 1) {
    to.add(heun ? bend : -0.5 * alpha * grow, last);
    return to;
  }
  if (!heun) {
    to.add(bend, last);
    return to;
  }
  const double r1 = (path.lambda(i - 1) - start) / h;
  const LinearForm middle{0, {{i - 1, 1 / r1}, {begin, -1 / r1}}};
  const double second = -alpha * ((grow + h) / (h * h) - 0.5) * 2 / (r0 - r1);
  to.add(bend * r0 / (r0 - r1) - second, middle);
  to.add(-bend * r1 / (r0 - r1) + second, last);
  return to;
}

}  // namespace

std::unique_ptr<Sampler> dpm_singlestep(const base::ConfigReader& reader,
                                        const ScheduleRequest& request) {
  reader.choice("algorithm_type", "dpmsolver++", {"dpmsolver++", "deis"});
  const bool heun = reader.choice("solver_type", "midpoint",
                                  {"midpoint", "heun", "logrho", "bh1", "bh2"}) == "heun";
  const auto most = static_cast<int>(reader.integer("solver_order", 2, 1, 3));
  const SolverPath path = solver_path(reader, request, SolverClass::dpm_singlestep);
  const PredictionType prediction = read_path_prediction(reader, path);
  const std::vector<int> orders = orders_of(reader, most, request.steps);
  std::vector<LinearStep> steps;
  size_t begin = 0;
  LinearForm now;  // the current latent by the latent at `begin`
  for (size_t i = 0; i < orders.size(); ++i) {
    if (orders[i] == 1) begin = i, now = {1, {}};
    const LinearForm to = solve(path, begin, i, heun), step = to.from(now);
    const FromPair clean = clean_of(prediction, path.alpha(i), path.sigma(i));
    steps.push_back({.timestep = path.times[i],
                     .from_x = clean.x,
                     .from_out = clean.out,
                     .x = step.x,
                     .x0 = step.newest_first(i),
                     .before = path.noised(i)});
    now = to;
  }
  return std::make_unique<LinearSampler>(std::move(steps), 1,
                                         read_clip(reader, std::nullopt, request.tokens));
}

}  // namespace tessera::sample

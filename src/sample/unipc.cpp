#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "sample/linear_form.h"
#include "sample/scheduler.h"
#include "sample/solver_path.h"

namespace tessera::sample {
namespace {

struct Solver {
  int order = 2;
  bool bh1 = false, clean = true;  // estimates are of the clean latent, else of the noise
};

// Solves the system sum_j r_j^i w_j = b_i for as many rows i as nodes r.
std::vector<double> vandermonde(const std::vector<double>& r, const std::vector<double>& b) {
  const size_t k = r.size();
  std::vector<std::vector<double>> a(k, std::vector<double>(k + 1));
  for (size_t i = 0; i < k; ++i) {
    for (size_t j = 0; j < k; ++j) a[i][j] = std::pow(r[j], double(i));
    a[i][k] = b[i];
  }
  for (size_t c = 0; c < k; ++c)  // distinct nodes in rising powers need no pivots
    for (size_t i = 0; i < k; ++i) {
      if (i == c) continue;
      const double factor = a[i][c] / a[c][c];
      for (size_t j = c; j <= k; ++j) a[i][j] -= factor * a[c][j];
    }
  std::vector<double> w;
  for (size_t i = 0; i < k; ++i) w.push_back(a[i][k] / a[i][i]);
  return w;
}

// UniP or UniC (Zhao et al. 2023, section 3.2) from step `from` of the schedule to the next. Reads
// the estimates of `order` steps up to `from`; the corrector also that of the next step. `grow` is
// e^hh - 1 and `by` the paper's B(h).
LinearForm solve(const SolverPath& path, const Solver& solver, size_t from, int order,
                 bool corrects) {
  const size_t to = from + 1;
  const double start = path.lambda(from), h = path.lambda(to) - start;
  const double hh = solver.clean ? -h : h, grow = std::expm1(hh), by = solver.bh1 ? hh : grow;
  const double scale = solver.clean ? path.alpha(to) : path.sigma(to);
  LinearForm form{
      solver.clean ? path.sigma(to) / path.sigma(from) : path.alpha(to) / path.alpha(from),
      {{from, -scale * grow}}};
  std::vector<double> nodes, b;
  std::vector<size_t> places;
  for (int k = 1; k < order; ++k) {
    places.push_back(from - static_cast<size_t>(k));
    nodes.push_back((path.lambda(places.back()) - start) / h);
  }
  if (corrects) places.push_back(to), nodes.push_back(1);
  if (nodes.empty()) return form;
  double phi = grow / hh - 1, factorial = 1;
  for (int k = 1; k <= order; ++k) {
    b.push_back(phi * factorial / by);
    factorial *= k + 1;
    phi = phi / hh - 1 / factorial;
  }
  // With a single difference the published program rounds the weight to a half.
  const std::vector<double> weights =
      nodes.size() == 1 ? std::vector<double>{0.5} : vandermonde(nodes, b);
  for (size_t k = 0; k < nodes.size(); ++k)
    form.add(-scale * by * weights[k] / nodes[k], {0, {{places[k], 1}, {from, -1}}});
  return form;
}

Solver read_solver(const base::ConfigReader& reader) {
  require(!reader.has("solver_p"), ErrorCode::model,
          "{}: 'solver_p', another scheduler as predictor, is not supported", reader.where());
  Solver solver;
  solver.order = static_cast<int>(reader.integer("solver_order", 2, 1, 3));
  solver.bh1 =
      reader.choice("solver_type", "bh2", {"bh1", "bh2", "midpoint", "heun", "logrho"}) == "bh1";
  solver.clean = reader.flag("predict_x0", true);
  return solver;
}

}  // namespace

std::unique_ptr<Sampler> unipc(const base::ConfigReader& reader, const ScheduleRequest& request) {
  const Solver solver = read_solver(reader);
  const SolverPath path = solver_path(reader, request, SolverClass::unipc);
  const PredictionType prediction = read_path_prediction(reader, path);
  require(solver.clean || !path.flow, ErrorCode::model,
          "{}: 'predict_x0' false is not supported for a flow", reader.where());
  const Clip clip = read_clip(reader, std::nullopt, request.tokens);
  require(solver.clean || clip.quantile == 0, ErrorCode::model,
          "{}: 'thresholding' is not supported with 'predict_x0' false", reader.where());
  const std::vector<int64_t> uncorrected = reader.sizes("disable_corrector", {});
  const bool lower = reader.flag("lower_order_final", true);
  const auto n = static_cast<int>(path.times.size());
  std::vector<LinearStep> steps;
  LinearForm predictor;  // this latent over the corrected latent of the step before
  for (int i = 0, before = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(i);
    const int order = std::min({solver.order, i + 1, lower ? n - i : solver.order});
    LinearForm corrected{1, {}};  // over this latent
    if (i > 0 && std::ranges::find(uncorrected, i - 1) == uncorrected.end())
      corrected = solve(path, solver, at - 1, before, true).from(predictor);
    predictor = solve(path, solver, at, order, false);
    LinearForm step{0, predictor.estimates};
    step.add(predictor.x, corrected);
    const FromPair pair = solver.clean ? clean_of(prediction, path.alpha(at), path.sigma(at))
                                       : noise_of(prediction, path.alpha(at), path.sigma(at));
    steps.push_back({.timestep = path.times[at],
                     .from_x = pair.x,
                     .from_out = pair.out,
                     .x = step.x,
                     .x0 = step.newest_first(at),
                     .before = path.noised(at)});
    before = order;
  }
  return std::make_unique<LinearSampler>(std::move(steps), 1, clip);
}

}  // namespace tessera::sample

#include "sample/solver_path.h"

#include <algorithm>

#include "base/fail.h"
#include "sample/noise_schedule.h"

namespace tessera::sample {
namespace {

// What a scheduler of `kind` is given.
struct Source {
  const base::ConfigReader& read;
  SolverClass kind;
  int steps = 0, train_steps = 0;
  int64_t tokens = 0;
  std::vector<double> all;  // sigmas of training
};

std::vector<double> whole_times(const Source& from) {
  const bool spaced = from.kind != SolverClass::dpm_singlestep;
  const std::string spacing =
      spaced ? from.read.choice("timestep_spacing", "linspace", {"linspace", "leading", "trailing"})
             : "linspace";
  const int64_t offset = from.read.integer("steps_offset", 0, 0, 1000);
  check_steps(from.steps, from.train_steps);
  std::vector<double> times;
  if (spacing == "linspace") {
    const auto even = linspace(0, from.train_steps - 1, from.steps + 1);
    for (int i = from.steps; i > 0; --i) times.push_back(rounded(even[static_cast<size_t>(i)]));
  } else if (spacing == "leading") {
    const int64_t ratio = from.train_steps / (from.steps + 1);
    for (int i = from.steps; i > 0; --i)
      times.push_back(double(std::min<int64_t>(i * ratio + offset, from.train_steps - 1)));
  } else {
    for (int64_t t : spaced_timesteps(spacing, from.train_steps, from.steps, 0))
      times.push_back(double(t));
  }
  return times;
}

double flow_shift(const Source& from) {
  if (!from.read.flag("use_dynamic_shifting", false)) return from.read.positive("flow_shift", 1);
  from.read.choice("time_shift_type", "exponential", {"exponential"});
  return std::exp(read_size_shift(from.read, from.tokens));
}

void add_flow(const Source& from, SolverPath& path) {
  const double shift = flow_shift(from), least = 1 / double(from.train_steps);
  const auto even = linspace(1, least, from.steps + 1);
  const bool upwards = from.kind == SolverClass::unipc;
  for (int i = 0; i < from.steps; ++i) {
    const double s =
        upwards ? even[static_cast<size_t>(i)] : 1 - even[static_cast<size_t>(from.steps - i)];
    path.sigmas.push_back(shift * s / (1 + (shift - 1) * s));
  }
  if (upwards) {
    if (const double last = from.read.number("shift_terminal", 0, 0, 0.999); last != 0) {
      const double scale = (1 - path.sigmas.back()) / (1 - last);
      require(scale > 0, ErrorCode::usage, "{} steps cannot end at 'shift_terminal' {}", from.steps,
              last);
      for (double& s : path.sigmas) s = 1 - (1 - s) / scale;
    }
    // No logarithm of zero in the first step.
    if (std::abs(path.sigmas.front() - 1) < 1e-6) path.sigmas.front() -= 1e-6;
  }
  for (double s : path.sigmas) path.times.push_back(std::trunc(s * from.train_steps));
}

void add_spread(const Source& from, Spread spread, bool lu, SolverPath& path) {
  check_steps(from.steps, from.train_steps);
  double high = from.all.back(), low = from.all.front();
  if (from.kind == SolverClass::unipc) {
    high = from.read.positive("sigma_max", high);
    low = from.read.positive("sigma_min", low);
  }
  // Evenly spaced log sigmas are evenly spaced lambdas (Lu et al. 2022, section 6).
  path.sigmas = spread_sigmas(lu ? Spread::exponential : spread, high, low, from.steps);
  const bool cosine =
      from.kind == SolverClass::dpm_multistep &&
      from.read.choice("beta_schedule", "linear",
                       {"linear", "scaled_linear", "squaredcos_cap_v2"}) == "squaredcos_cap_v2";
  const bool nearest = !cosine && (lu || spread == Spread::karras);
  for (double& s : path.sigmas) {
    if (path.flow) s /= s + 1;
    const double t = path.flow ? s * from.train_steps : timestep_of_sigma(from.all, s);
    path.times.push_back(nearest && !path.flow ? rounded(t) : std::trunc(t));
  }
}

// The sigma that the last step reaches.
double last_sigma(const Source& from, bool spread, const SolverPath& path) {
  const bool repeats = spread || path.flow;
  if (from.kind == SolverClass::deis) return repeats ? path.sigmas.back() : from.all.front();
  if (from.read.choice("final_sigmas_type", "zero", {"zero", "sigma_min"}) == "zero") return 0;
  return from.kind == SolverClass::unipc && repeats ? path.sigmas.back() : from.all.front();
}

}  // namespace

double read_size_shift(const base::ConfigReader& read, int64_t tokens) {
  const double base = read.number("base_shift", 0.5, -20, 20),
               most = read.number("max_shift", 1.15, -20, 20);
  const double from = double(read.size("base_image_seq_len", 256));
  const double to = double(read.size("max_image_seq_len", 4096));
  require(from != to, ErrorCode::model,
          "{}: 'base_image_seq_len' and 'max_image_seq_len' are both {}", read.where(), from);
  const double slope = (most - base) / (to - from);
  return double(tokens) * slope + (base - slope * from);
}

PredictionType read_path_prediction(const base::ConfigReader& read, const SolverPath& path) {
  const PredictionType prediction = read_prediction(read, true);
  require(path.flow == (prediction == PredictionType::flow), ErrorCode::model,
          "{}: flow_prediction and use_flow_sigmas go together", read.where());
  return prediction;
}

SolverPath solver_path(const base::ConfigReader& read, const ScheduleRequest& request,
                       SolverClass kind) {
  const bool rescales = kind == SolverClass::dpm_multistep || kind == SolverClass::unipc;
  NoiseSchedule schedule = read_noise_schedule(read, {.rescales = rescales});
  // A last alpha of zero would be an infinite sigma.
  if (rescales && read.flag("rescale_betas_zero_snr", false))
    schedule.alphas_cumprod.back() = std::pow(2, -24);
  const Source from{
      read, kind, request.steps, schedule.train_steps, request.tokens, schedule.sigmas()};
  const Spread spread = read_spread(read);
  const bool lu = kind == SolverClass::dpm_multistep && spread != Spread::karras &&
                  read.flag("use_lu_lambdas", false);
  const bool spreads = lu || spread != Spread::even;
  SolverPath path{.flow = read.flag("use_flow_sigmas", false), .times = {}, .sigmas = {}};
  require(!path.flow || !spreads || (kind == SolverClass::unipc && spread == Spread::karras),
          ErrorCode::model,
          "{}: use_flow_sigmas beside another way to spread sigmas is not supported: set one of "
          "them to false",
          read.where());
  if (spreads) {
    add_spread(from, spread, lu, path);
  } else if (path.flow) {
    check_steps(request.steps, schedule.train_steps);
    add_flow(from, path);
  } else {
    path.times = whole_times(from);
    for (double t : path.times) path.sigmas.push_back(sigma_at(from.all, t));
  }
  path.sigmas.push_back(last_sigma(from, spreads, path));
  for (double& s : path.sigmas) s = double(float(s));
  return path;
}

}  // namespace tessera::sample

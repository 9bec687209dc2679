#include "sample/solver_path.h"

#include <algorithm>

#include "base/fail.h"
#include "sample/noise_schedule.h"
#include "sample/step_lists.h"

namespace tessera::sample {
namespace {

// The inputs of a scheduler of `kind`.
struct Source {
  const base::ConfigReader& reader;
  SolverClass kind;
  int steps = 0, train_steps = 0;
  int64_t tokens = 0;
  double max_shift = 1.15;
  std::vector<double> train_sigmas;
  std::vector<double> request_sigmas;
};

// Number of training timesteps that remain after clipping lambdas from below; clipping keeps cosine
// schedules away from infinite lambdas.
int left_times(const Source& from) {
  const bool clips =
      from.kind == SolverClass::dpm_multistep || from.kind == SolverClass::dpm_singlestep;
  const double least = clips ? from.reader.number("lambda_min_clipped", -1e300) : -1e300;
  const auto is_kept = [&](double sigma) { return -std::log(sigma) >= least; };
  return static_cast<int>(std::ranges::count_if(from.train_sigmas, is_kept));
}

std::vector<double> whole_times(const Source& from) {
  const bool spaced = from.kind != SolverClass::dpm_singlestep;
  const std::string spacing = spaced ? from.reader.choice("timestep_spacing", "linspace",
                                                          {"linspace", "leading", "trailing"})
                                     : "linspace";
  const int64_t offset = from.reader.integer("steps_offset", 0, 0, 1000);
  check_steps(from.steps, from.train_steps);
  const int left = left_times(from);
  require(left > 0, ErrorCode::model, "{}: 'lambda_min_clipped' leaves no timestep",
          from.reader.where());
  std::vector<double> times;
  if (spacing == "linspace") {
    const auto even = linspace(0, left - 1, from.steps + 1);
    for (int i = from.steps; i > 0; --i) times.push_back(rounded(even[static_cast<size_t>(i)]));
  } else if (spacing == "leading") {
    const int64_t ratio = left / (from.steps + 1);
    for (int i = from.steps; i > 0; --i) times.push_back(double(i * ratio + offset));
  } else {
    for (int64_t t : trailing_timesteps(left, double(from.train_steps) / from.steps))
      times.push_back(double(t));
  }
  return times;
}

// A shift of sigmas of a flow: s / (s + (1 - s) / shift).
double flow_shift(const Source& from) {
  if (!from.reader.flag("use_dynamic_shifting", false))
    return from.reader.positive("flow_shift", 1);
  const double mu = read_size_shift(from.reader, from.tokens, from.max_shift);
  const auto type = [&](std::initializer_list<const char*> choices) {
    return from.reader.choice("time_shift_type", "exponential", choices);
  };
  const bool either = from.kind == SolverClass::unipc;
  const bool linear =
      (either ? type({"exponential", "linear"}) : type({"exponential"})) == "linear";
  require(!linear || mu > 0, ErrorCode::model,
          "{}: a linear shift of {}; expected one above 0: 'base_shift' and 'max_shift'",
          from.reader.where(), mu);
  return linear ? mu : std::exp(mu);
}

void add_flow(const Source& from, SolverPath& path) {
  const double shift = flow_shift(from), least = 1 / double(from.train_steps);
  const auto even = linspace(1, least, from.steps + 1);
  const bool upwards = from.kind == SolverClass::unipc;
  for (int i = 0; i < from.steps; ++i) {
    const auto at = static_cast<size_t>(i);
    const double s = !from.request_sigmas.empty() ? from.request_sigmas[at]
                     : upwards                    ? even[at]
                                                  : 1 - even[static_cast<size_t>(from.steps - i)];
    path.sigmas.push_back(shift * s / (1 + (shift - 1) * s));
  }
  if (upwards) {
    if (const double last = from.reader.number("shift_terminal", 0, 0, 0.999); last != 0) {
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

// Evenly spaced lambdas (Lu et al. 2022, section 6) are evenly spaced log sigmas with f32 ends.
std::vector<double> lu_sigmas(const std::vector<float>& logs, int steps) {
  const double high = double(logs.back()), low = double(logs.front());
  std::vector<double> sigmas;
  for (const double part : linspace(0, 1, steps))
    sigmas.push_back(std::exp(high + part * (low - high)));
  return sigmas;
}

void add_spread(const Source& from, Spread spread, bool lu, SolverPath& path) {
  check_steps(from.steps, from.train_steps);
  double high = from.train_sigmas.back(), low = from.train_sigmas.front();
  if (from.kind == SolverClass::unipc) {
    high = from.reader.positive("sigma_max", high);
    low = from.reader.positive("sigma_min", low);
  }
  const std::vector<float> logs = float_logs(from.train_sigmas);
  path.sigmas = lu ? lu_sigmas(logs, from.steps) : spread_sigmas(spread, high, low, from.steps);
  const bool cosine =
      from.kind == SolverClass::dpm_multistep &&
      from.reader.choice("beta_schedule", "linear",
                         {"linear", "scaled_linear", "squaredcos_cap_v2"}) == "squaredcos_cap_v2";
  const bool nearest = !cosine && (lu || spread == Spread::karras);
  for (double& s : path.sigmas) {
    if (path.flow) s /= s + 1;
    const double t = path.flow ? s * from.train_steps : timestep_of_sigma(logs, s);
    path.times.push_back(nearest && !path.flow ? rounded(t) : std::trunc(t));
  }
}

// The sigma after the last step.
double last_sigma(const Source& from, bool spread, const SolverPath& path) {
  const bool repeats = spread || path.flow;
  if (from.kind == SolverClass::deis)
    return repeats ? path.sigmas.back() : from.train_sigmas.front();
  if (from.reader.choice("final_sigmas_type", "zero", {"zero", "sigma_min"}) == "zero") return 0;
  return from.kind == SolverClass::unipc && repeats ? path.sigmas.back()
                                                    : from.train_sigmas.front();
}

}  // namespace

double read_size_shift(const base::ConfigReader& reader, int64_t tokens, double max_shift) {
  const double base = reader.number("base_shift", 0.5, -20, 20),
               most = reader.number("max_shift", max_shift, -20, 20);
  const double from = double(reader.size("base_image_seq_len", 256));
  const double to = double(reader.size("max_image_seq_len", 4096));
  require(from != to, ErrorCode::model,
          "{}: 'base_image_seq_len' and 'max_image_seq_len' are both {}", reader.where(), from);
  const double slope = (most - base) / (to - from);
  return double(tokens) * slope + (base - slope * from);
}

PredictionType read_path_prediction(const base::ConfigReader& reader, const SolverPath& path) {
  const PredictionType prediction = read_prediction(reader, true);
  require(path.flow == (prediction == PredictionType::flow), ErrorCode::model,
          "{}: flow_prediction and use_flow_sigmas go together", reader.where());
  return prediction;
}

SolverPath solver_path(const base::ConfigReader& reader, const ScheduleRequest& request,
                       SolverClass kind) {
  const bool rescales = kind == SolverClass::dpm_multistep || kind == SolverClass::unipc;
  NoiseSchedule schedule = read_noise_schedule(reader, {.rescales = rescales});
  // A last alpha of zero would be an infinite sigma.
  if (rescales && reader.flag("rescale_betas_zero_snr", false))
    schedule.alphas_cumprod.back() = std::pow(2, -24);
  const Source from{reader,
                    kind,
                    request.steps,
                    schedule.train_steps,
                    request.tokens,
                    request.max_shift,
                    schedule.sigmas(),
                    request.sigmas};
  const Spread spread = read_sharded(reader);
  const bool lu = kind == SolverClass::dpm_multistep && spread != Spread::karras &&
                  reader.flag("use_lu_lambdas", false);
  const bool spreads = lu || spread != Spread::even;
  SolverPath path{.flow = reader.flag("use_flow_sigmas", false), .times = {}, .sigmas = {}};
  require(!path.flow || !spreads || (kind == SolverClass::unipc && spread == Spread::karras),
          ErrorCode::model,
          "{}: use_flow_sigmas beside another way to spread sigmas is not supported: set one of "
          "them to false",
          reader.where());
  if (spreads) {
    add_spread(from, spread, lu, path);
  } else if (path.flow) {
    check_steps(request.steps, schedule.train_steps);
    add_flow(from, path);
  } else {
    const auto timesteps = whole_timesteps(request.timesteps, schedule.train_steps);
    path.times = timesteps.empty() ? whole_times(from)
                                   : std::vector<double>(timesteps.begin(), timesteps.end());
    for (double t : path.times) path.sigmas.push_back(sigma_at(from.train_sigmas, t));
  }
  path.sigmas.push_back(last_sigma(from, spreads, path));
  for (double& s : path.sigmas) s = double(float(s));
  if (kind != SolverClass::dpm_singlestep) {  // its orders restart at fixed steps
    path.times.erase(path.times.begin(), path.times.begin() + request.skip);
    path.sigmas.erase(path.sigmas.begin(), path.sigmas.begin() + request.skip);
  }
  return path;
}

}  // namespace tessera::sample

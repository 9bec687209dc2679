#include "sample/scheduler.h"

#include <fmt/ranges.h>

#include <cmath>

#include "base/fail.h"
#include "sample/linear_sampler.h"
#include "sample/step_lists.h"
#include "tessera/words.h"

namespace tessera {
namespace sample {
namespace {

// Runs all steps on a single number (or a sample, if steps need whole samples): if the number stays
// finite, so do latents.
void check_finite(const Sampler& sampler, const std::string& where, int64_t tokens) {
  const std::vector<float> ones(sampler.whole_samples() ? static_cast<size_t>(tokens) : 1, 1.0f);
  const Tensor unit =
      Tensor::from(std::span<const float>(ones), {static_cast<int64_t>(ones.size()), 1});
  Tensor x = unit;
  History history;
  for (int i = 0; i < sampler.steps(); ++i) {
    x = sampler.step(i, unit, x, unit, history);
    const bool finite = std::isfinite(x.data<float>()[0]) && std::isfinite(sampler.timestep(i)) &&
                        std::isfinite(sampler.input_scale(i) * sampler.initial_scale());
    require(finite, ErrorCode::model,
            "{}: it gives no finite numbers in step {} of {}; expected a schedule that its "
            "prediction_type can follow",
            where, i + 1, sampler.steps());
  }
}

}  // namespace

const std::vector<Scheduler>& schedulers() {
  using S = SchedulerName;
  using T = Timesteps;
  using G = Sigmas;
  static const std::vector<Scheduler> all{
      {"FlowMatchEulerDiscreteScheduler", S::flow_euler, FlowPath::always, false, T::real, G::steps,
       flow_match_euler},
      {"DPMSolverMultistepScheduler", S::dpm_multistep, FlowPath::by_flag, false, T::whole, G::none,
       dpm_solver},
      {"DPMSolverSinglestepScheduler", S::dpm_singlestep, FlowPath::by_flag, false, T::whole,
       G::none, dpm_singlestep},
      {"UniPCMultistepScheduler", S::unipc, FlowPath::by_flag, false, T::none, G::steps, unipc},
      {"DEISMultistepScheduler", S::deis, FlowPath::by_flag, false, T::none, G::none, deis},
      {"EulerDiscreteScheduler", S::euler, FlowPath::never, true, T::real, G::places,
       euler_discrete},
      {"EulerAncestralDiscreteScheduler", S::euler_ancestral, FlowPath::never, true, T::none,
       G::none, euler_ancestral},
      {"HeunDiscreteScheduler", S::heun, FlowPath::never, true, T::real, G::none, heun_discrete},
      {"LCMScheduler", S::lcm, FlowPath::never, false, T::whole, G::none, lcm},
      {"DDIMScheduler", S::ddim, FlowPath::never, true, T::none, G::none, ddim},
      {"DDPMScheduler", S::ddpm, FlowPath::never, true, T::whole, G::none, ddpm},
      {"CogVideoXDDIMScheduler", S::cogvideox_ddim, FlowPath::never, true, T::none, G::none,
       cogvideox_ddim},
      {"CogVideoXDPMScheduler", S::cogvideox_dpm, FlowPath::never, true, T::none, G::none,
       cogvideox_dpm},
  };
  return all;
}

namespace {

bool solves_flow(const Scheduler& scheduler, const base::ConfigReader& reader) {
  return scheduler.flow == FlowPath::always ||
         (scheduler.flow == FlowPath::by_flag && reader.flag("use_flow_sigmas", false));
}

// Classes with several orders skip steps themselves. If a step is two passes, both are skipped.
std::unique_ptr<Sampler> started(std::unique_ptr<Sampler> sampler, const ScheduleRequest& request) {
  const int passes = sampler->steps() > request.steps ? 2 : 1;
  if (request.skip == 0 || sampler->steps() == request.steps - request.skip) return sampler;
  return without_first(*sampler, passes * request.skip);
}

// CogVideoX shifts its noise schedule by keys of its own.
bool of_cogvideox(const std::string& name) { return name.starts_with("CogVideoX"); }

}  // namespace

SchedulerConfig other_scheduler(const SchedulerConfig& folder, SchedulerName option, bool flow) {
  std::vector<std::string> fit;
  const Scheduler* scheduler = nullptr;
  for (const Scheduler& s : schedulers()) {
    const bool fits =
        flow ? s.flow != FlowPath::never
             : s.flow != FlowPath::always && of_cogvideox(s.name) == of_cogvideox(folder.name);
    if (!fits) continue;
    fit.emplace_back(word_of(s.option));
    if (option == s.option) scheduler = &s;
  }
  require(scheduler != nullptr, ErrorCode::usage,
          "`scheduler` {}: not one that fits this model; those are auto, {}", word_of(option),
          fmt::join(fit, ", "));
  SchedulerConfig result{scheduler->name, folder.config};
  if (flow && scheduler->flow == FlowPath::by_flag) {
    result.config["use_flow_sigmas"] = true;
    result.config["prediction_type"] = "flow_prediction";
    if (!result.config.contains("flow_shift") && result.config.contains("shift"))
      result.config["flow_shift"] = result.config["shift"];
  }
  return result;
}

std::unique_ptr<Sampler> make_sampler(const std::string& class_name, const base::Json& config,
                                      const std::string& where, const ScheduleRequest& request) {
  std::string names;
  for (const Scheduler& scheduler : schedulers()) {
    if (class_name == scheduler.name) {
      const base::ConfigReader reader(config, where);
      require(!request.flow || solves_flow(scheduler, reader), ErrorCode::model,
              "{}: '{}' does not solve a flow, which this transformer predicts; expected "
              "FlowMatchEulerDiscreteScheduler, or a solver with use_flow_sigmas",
              where, class_name);
      check_step_lists(scheduler, reader, request);
      auto sampler = started(scheduler.make(reader, request), request);
      if (request.predicted_sample && scheduler.tells_prediction)
        sampler = predicting_sampler(*sampler);
      check_finite(*sampler, where, request.tokens);
      return sampler;
    }
    names += (names.empty() ? "" : ", ") + std::string(scheduler.name);
  }
  fail(ErrorCode::model, "{}: the scheduler '{}' is not supported; supported are: {}", where,
       class_name, names);
}

}  // namespace sample

SchedulerName parse_scheduler(const std::string& text) {
  for (const sample::Scheduler& scheduler : sample::schedulers())
    if (text == scheduler.name) return scheduler.option;
  return choice_of<SchedulerName>(text, "`scheduler`");
}

}  // namespace tessera

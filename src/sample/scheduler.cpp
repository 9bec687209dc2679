#include "sample/scheduler.h"

#include <cmath>

#include "base/fail.h"

namespace tessera::sample {

namespace {

// A walk of one number: no latent survives steps that this one does not.
void check_finite(const Sampler& sampler, const std::string& where) {
  const float one = 1;
  const Tensor unit = Tensor::from(std::span<const float>(&one, 1), {1, 1});
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
  static const std::vector<Scheduler> all{
      {"FlowMatchEulerDiscreteScheduler", flow_match_euler},
      {"DPMSolverMultistepScheduler", dpm_solver},
      {"EulerDiscreteScheduler", euler_discrete},
      {"DDIMScheduler", ddim},
      {"DDPMScheduler", ddpm},
      {"CogVideoXDDIMScheduler", cogvideox_ddim},
      {"CogVideoXDPMScheduler", cogvideox_dpm},
  };
  return all;
}

std::unique_ptr<Sampler> make_sampler(const std::string& class_name, const base::Json& config,
                                      const std::string& where, const ScheduleRequest& request) {
  std::string known;
  for (const Scheduler& scheduler : schedulers()) {
    if (class_name == scheduler.name) {
      auto sampler = scheduler.make({config, where}, request);
      check_finite(*sampler, where);
      return sampler;
    }
    known += (known.empty() ? "" : ", ") + std::string(scheduler.name);
  }
  fail(ErrorCode::model, "{}: the scheduler '{}' is not supported; supported are: {}", where,
       class_name, known);
}

}  // namespace tessera::sample

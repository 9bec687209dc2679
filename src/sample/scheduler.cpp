#include "sample/scheduler.h"

#include "base/fail.h"

namespace tessera::sample {

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
    if (class_name == scheduler.name) return scheduler.make({config, where}, request);
    known += (known.empty() ? "" : ", ") + std::string(scheduler.name);
  }
  fail(ErrorCode::model, "{}: the scheduler '{}' is not supported; supported are: {}", where,
       class_name, known);
}

}  // namespace tessera::sample

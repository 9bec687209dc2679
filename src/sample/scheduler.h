#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/config_reader.h"
#include "sample/sampler.h"

namespace tessera::sample {

/// What a pipeline tells its scheduler beside the configuration.
struct ScheduleRequest {
  int steps = 0;
  int64_t tokens = 0;        ///< latent tokens of a picture, for a shift that depends on the size
  bool even_sigmas = false;  ///< FLUX: sigmas from 1 to 1/steps instead of those of training
};

/// A scheduler of diffusers by its class name.
struct Scheduler {
  const char* name;
  std::unique_ptr<Sampler> (*make)(const base::ConfigReader& config,
                                   const ScheduleRequest& request);
};
/// All schedulers, in one list read from top to bottom.
const std::vector<Scheduler>& schedulers();
/// The sampler that a scheduler_config.json describes. Throws Error(model) naming a class, a key or
/// a value that is not supported, Error(usage) for a number of steps that does not fit.
std::unique_ptr<Sampler> make_sampler(const std::string& class_name, const base::Json& config,
                                      const std::string& where, const ScheduleRequest& request);

/// FlowMatchEulerDiscreteScheduler (Esser et al. 2024): Euler steps of a flow, sigmas shifted by a
/// constant or by the picture's size.
std::unique_ptr<Sampler> flow_match_euler(const base::ConfigReader& config,
                                          const ScheduleRequest& request);
/// DPMSolverMultistepScheduler: DPM-Solver++ (Lu et al. 2022) of order 1 to 3 and its stochastic
/// form of order 1 and 2.
std::unique_ptr<Sampler> dpm_solver(const base::ConfigReader& config,
                                    const ScheduleRequest& request);
/// EulerDiscreteScheduler (Karras et al. 2022, algorithm 2 without churn).
std::unique_ptr<Sampler> euler_discrete(const base::ConfigReader& config,
                                        const ScheduleRequest& request);
/// DDIMScheduler (Song et al. 2021), eta 0.
std::unique_ptr<Sampler> ddim(const base::ConfigReader& config, const ScheduleRequest& request);
/// DDPMScheduler (Ho et al. 2020) with a fixed variance.
std::unique_ptr<Sampler> ddpm(const base::ConfigReader& config, const ScheduleRequest& request);
/// CogVideoXDDIMScheduler (Yang et al. 2024): DDIM on a shifted schedule that ends in pure noise.
std::unique_ptr<Sampler> cogvideox_ddim(const base::ConfigReader& config,
                                        const ScheduleRequest& request);
/// CogVideoXDPMScheduler: stochastic DPM-Solver++ of second order on the same schedule.
std::unique_ptr<Sampler> cogvideox_dpm(const base::ConfigReader& config,
                                       const ScheduleRequest& request);

}  // namespace tessera::sample

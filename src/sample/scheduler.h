#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/config_reader.h"
#include "sample/sampler.h"
#include "tessera/request.h"

namespace tessera::sample {

/// The pipeline's inputs to a scheduler, beside the configuration.
struct ScheduleRequest {
  int steps = 0;
  int64_t tokens = 0;         ///< latent tokens of a sample, for a shift that depends on the size
  bool even_sigmas = false;   ///< FLUX: sigmas from 1 to 1/steps instead of those of training
  bool float_sigmas = false;  ///< Z-Image: sigmas as PyTorch floats; others: NumPy doubles
  bool flow = false;          ///< the denoiser predicts a flow's velocity; only flow classes fit
  /// Default of a shift that depends on the size, without a value in the configuration or class.
  double max_shift = 1.15;
  /// PixArt-alpha with a single step returns the predicted clean sample, if the class supports it.
  bool predicted_sample = false;
  /// Number of first steps to skip, for a run that starts from an image.
  int skip = 0;
  /// Timesteps or sigmas in place of the configured ones, largest first; empty: none.
  std::vector<double> timesteps{}, sigmas{};
};

/// Whether a class solves the path of a flow: never, if use_flow_sigmas is true, or always.
enum class FlowPath : uint8_t { never, by_flag, always };

/// The lists of set_timesteps that a class takes. `places`: the last sigma is the end of the last
/// step.
enum class Timesteps : uint8_t { none, real, whole };
enum class Sigmas : uint8_t { none, steps, places };

/// A scheduler of diffusers by its class name.
struct Scheduler {
  const char* name;
  SchedulerName option;
  FlowPath flow;
  bool tells_prediction;  ///< its step returns the predicted clean sample, too
  Timesteps timesteps;
  Sigmas sigmas;
  std::unique_ptr<Sampler> (*make)(const base::ConfigReader& config,
                                   const ScheduleRequest& request);
};
/// All schedulers, in search order.
const std::vector<Scheduler>& schedulers();
/// Makes the sampler of a scheduler_config.json. Throws Error(model) naming a class, key or value
/// that is unsupported or does not fit the denoiser, Error(usage) for an invalid number of steps.
std::unique_ptr<Sampler> make_sampler(const std::string& class_name, const base::Json& config,
                                      const std::string& where, const ScheduleRequest& request);

/// A scheduler's class name and configuration.
struct SchedulerConfig {
  std::string name;
  base::Json config;
};
/// Another class with the configuration of a folder's scheduler, as `from_config` of diffusers. If
/// the denoiser predicts a flow, the solver is configured for flows. Throws Error(usage) for an
/// unsuitable class.
SchedulerConfig other_scheduler(const SchedulerConfig& folder, SchedulerName option, bool flow);

/// FlowMatchEulerDiscreteScheduler (Esser et al. 2024): Euler steps of a flow, sigmas shifted by a
/// constant or by the sample's size.
std::unique_ptr<Sampler> flow_match_euler(const base::ConfigReader& config,
                                          const ScheduleRequest& request);
/// DPMSolverMultistepScheduler: DPM-Solver++ (Lu et al. 2022) of order 1 to 3 and its stochastic
/// form of order 1 and 2.
std::unique_ptr<Sampler> dpm_solver(const base::ConfigReader& config,
                                    const ScheduleRequest& request);
/// DPMSolverSinglestepScheduler: DPM-Solver++ with orders that restart every 2 or 3 steps.
std::unique_ptr<Sampler> dpm_singlestep(const base::ConfigReader& config,
                                        const ScheduleRequest& request);
/// UniPCMultistepScheduler (Zhao et al. 2023) of order 1 to 3.
std::unique_ptr<Sampler> unipc(const base::ConfigReader& config, const ScheduleRequest& request);
/// DEISMultistepScheduler (Zhang & Chen 2023), in log rho, of order 1 to 3.
std::unique_ptr<Sampler> deis(const base::ConfigReader& config, const ScheduleRequest& request);
/// EulerDiscreteScheduler (Karras et al. 2022, algorithm 2 without churn).
std::unique_ptr<Sampler> euler_discrete(const base::ConfigReader& config,
                                        const ScheduleRequest& request);
/// EulerAncestralDiscreteScheduler: the same with new noise in every step.
std::unique_ptr<Sampler> euler_ancestral(const base::ConfigReader& config,
                                         const ScheduleRequest& request);
/// HeunDiscreteScheduler (Karras et al. 2022, algorithm 1 without churn): 2 * steps - 1 forward
/// passes.
std::unique_ptr<Sampler> heun_discrete(const base::ConfigReader& config,
                                       const ScheduleRequest& request);
/// LCMScheduler: consistency sampling (Luo et al. 2023), with new noise in every step but the last.
std::unique_ptr<Sampler> lcm(const base::ConfigReader& config, const ScheduleRequest& request);
/// DDIMScheduler (Song et al. 2021), eta 0.
std::unique_ptr<Sampler> ddim(const base::ConfigReader& config, const ScheduleRequest& request);
/// DDPMScheduler (Ho et al. 2020) with a fixed variance.
std::unique_ptr<Sampler> ddpm(const base::ConfigReader& config, const ScheduleRequest& request);
/// CogVideoXDDIMScheduler (Yang et al. 2024): DDIM on a shifted schedule with pure noise at the
/// end.
std::unique_ptr<Sampler> cogvideox_ddim(const base::ConfigReader& config,
                                        const ScheduleRequest& request);
/// CogVideoXDPMScheduler: stochastic DPM-Solver++ of second order on the same schedule.
std::unique_ptr<Sampler> cogvideox_dpm(const base::ConfigReader& config,
                                       const ScheduleRequest& request);

}  // namespace tessera::sample

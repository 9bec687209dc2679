#include "base/is_there.h"
#include "sample/scheduler.h"
#include "whole/diffusers_golden.h"

namespace tessera {
namespace {

using load::SafetensorsFile;
using tensor::Tensor;

struct Case {
  std::string folder;
  base::Json config;
  SafetensorsFile io;

  explicit Case(const std::string& at)
      : folder(at),
        config(base::read_json(at + "/model/scheduler/scheduler_config.json")),
        io(at + "/io_scheduler.safetensors") {}
  std::unique_ptr<sample::Sampler> sampler(int steps, int64_t tokens) const {
    if (!base::is_there(folder + "/model/transformer/config.json"))  // the schedule travels alone
      return sample::make_sampler(config["_class_name"], config, folder,
                                  {steps, tokens, folder.find("flux") != std::string::npos});
    const models::PipelineSpec spec = spec_of_folder();
    base::Json told = config;
    if (spec.size_shift) told["base_shift"] = told["max_shift"] = spec.size_shift(tokens, steps);
    return sample::make_sampler(config["_class_name"], told, folder,
                                {steps, tokens, spec.even_sigmas, spec.float_sigmas});
  }
  models::PipelineSpec spec_of_folder() const {
    const std::string at = folder + "/model/transformer/config.json";
    const base::Json transformer = base::read_json(at);
    return models::pipeline_of(transformer["_class_name"], {transformer, at});
  }
};

std::vector<float> times_of(const sample::Sampler& sampler) {
  std::vector<float> times;
  for (int i = 0; i < sampler.steps(); ++i) times.push_back(sampler.timestep(i));
  return times;
}

TEST(SchedulerGolden, TimestepsAreExact) {
  const auto folders = golden::diffusers_cases("io_scheduler.safetensors", 9);
  EXPECT_GE(folders.size(), 6u);
  for (const std::string& folder : folders) {
    const Case c(folder);
    for (const auto& [name, entry] : c.io.entries()) {
      int steps = 0, at = 0;
      int64_t tokens = 0;
      if (sscanf(name.c_str(), "steps%d.seq%ld.timesteps%n", &steps, &tokens, &at) < 2 || at == 0) {
        tokens = 0, at = 0;
        if (sscanf(name.c_str(), "steps%d.timesteps%n", &steps, &at) < 1 || at == 0) continue;
      }
      EXPECT_EQ(times_of(*c.sampler(steps, tokens)), c.io.get(name).to_floats()) << folder << name;
    }
  }
}

TEST(SchedulerGolden, StepsFollowTheTrajectories) {
  for (const std::string& folder : golden::diffusers_cases("io_scheduler.safetensors", 9)) {
    const Case c(folder);
    int64_t tokens = 0;  // the smallest image of the case
    for (const auto& [name, entry] : c.io.entries())
      if (int64_t n = 0;
          sscanf(name.c_str(), "steps4.seq%ld.", &n) == 1 && (tokens == 0 || n < tokens))
        tokens = n;
    for (int steps : {4, 8, 20}) {
      SCOPED_TRACE(folder + " " + std::to_string(steps));
      const auto sampler = c.sampler(steps, tokens);
      const std::string run = "traj" + std::to_string(steps);
      if (steps == 20 && !c.io.has(run + ".x.1")) continue;  // the whole set has the long run
      auto flat = [&](const std::string& name) {
        const Tensor x = c.io.get(name);
        return x.reshape({1, x.elements()});
      };
      sample::History history;
      Tensor x = flat("traj.x0");
      for (int i = 0; i < steps; ++i) {
        const std::string n = std::to_string(i);
        const Tensor noise = sampler->needs_noise(i) ? flat(run + ".noise." + n) : Tensor();
        x = sampler->step(i, flat(run + ".model_output." + n), x, noise, history);
        EXPECT_LT(
            golden::max_error(x.to_floats(), flat(run + ".x." + std::to_string(i + 1)).to_floats()),
            3e-5)
            << "step " << i;
      }
    }
  }
}

}  // namespace
}  // namespace tessera

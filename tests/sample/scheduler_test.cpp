#include "sample/scheduler.h"

#include "sample/scheduler_settings.h"

namespace tessera::sample {
namespace {

TEST(Scheduler, EveryNameMakesASamplerFromAnEmptyConfiguration) {
  for (const Scheduler& s : schedulers()) {
    const auto sampler = sampler_of(s.name, "{}", 5, 16);
    EXPECT_EQ(sampler->steps(), 5) << s.name;
    for (int i = 0; i + 1 < 5; ++i)
      EXPECT_GT(sampler->timestep(i), sampler->timestep(i + 1)) << s.name;
  }
}

TEST(Scheduler, AnUnknownClassIsRefusedWithTheListOfWhatIsKnown) {
  const std::string says = refusal("HeunDiscreteScheduler", "{}");
  EXPECT_NE(says.find("'HeunDiscreteScheduler' is not supported"), std::string::npos) << says;
  EXPECT_NE(says.find("DPMSolverMultistepScheduler"), std::string::npos) << says;
}

TEST(Scheduler, NoStepsOrTooManyAreRefused) {
  for (const Scheduler& s : schedulers()) {
    EXPECT_NE(refusal(s.name, "{}", 0).find("0 steps"), std::string::npos) << s.name;
    EXPECT_NE(refusal(s.name, "{}", 1000000).find("steps were asked for"), std::string::npos)
        << s.name;
  }
}

TEST(Scheduler, ImpossibleNumbersAreRefused) {
  const struct {
    const char *name, *config, *says;
  } cases[] = {
      {"DDIMScheduler", R"({"beta_start": -0.00085})", "'beta_start' is -0.00085"},
      {"DPMSolverMultistepScheduler", R"({"beta_end": 1.2})", "'beta_end' is 1.2"},
      {"DDPMScheduler", R"({"trained_betas": [0.5, -0.5]})", "'trained_betas' holds -0.5"},
      {"EulerDiscreteScheduler", R"({"beta_end": 0.999})", "leave nothing of a picture"},
      {"EulerDiscreteScheduler", R"({"use_karras_sigmas": true, "sigma_min": -1})", "above 0"},
      {"CogVideoXDDIMScheduler", R"({"beta_start": 0})", "'beta_start' is 0"},
      {"CogVideoXDPMScheduler", R"({"snr_shift_scale": -3})", "'snr_shift_scale' is -3"},
      {"FlowMatchEulerDiscreteScheduler", R"({"shift": -3})", "'shift' is -3"},
      {"FlowMatchEulerDiscreteScheduler", R"({"shift_terminal": 1})", "'shift_terminal' is 1"},
      {"FlowMatchEulerDiscreteScheduler", R"({"max_shift": 1e300, "use_dynamic_shifting": true})",
       "'max_shift' is 1e+300"},
      {"DDIMScheduler", R"({"clip_sample_range": -1})", "'clip_sample_range' is -1"},
      {"DDIMScheduler", R"({"num_train_timesteps": -1000})", "is -1000"},
      {"DDIMScheduler", R"({"rescale_betas_zero_snr": true, "timestep_spacing": "trailing"})",
       "no finite numbers in step 1 of 4"},
  };
  for (const auto& c : cases)
    EXPECT_NE(refusal(c.name, c.config).find(c.says), std::string::npos)
        << c.name << " " << c.config << ": " << refusal(c.name, c.config);
}

}  // namespace
}  // namespace tessera::sample

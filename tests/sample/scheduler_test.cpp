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

}  // namespace
}  // namespace tessera::sample

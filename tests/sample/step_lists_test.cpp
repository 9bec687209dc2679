#include "sample/step_lists.h"

#include "sample/scheduler_walk.h"
#include "test_paths.h"

namespace tessera::sample {
namespace {

std::vector<double> list_of(const base::Json& run, const char* key) {
  return run.contains(key) ? run[key].get<std::vector<double>>() : std::vector<double>();
}

// Returns the message for a refused list.
std::string refused(const char* name, const char* json, const std::vector<double>& timesteps,
                    const std::vector<double>& sigmas) {
  try {
    const int steps = listed_steps(name, timesteps, sigmas);
    make_sampler(name, base::Json::parse(json), "scheduler_config.json",
                 {.steps = steps, .tokens = 16, .timesteps = timesteps, .sigmas = sigmas});
  } catch (const Error& e) {
    return e.code() == ErrorCode::usage ? e.what() : std::string("not usage: ") + e.what();
  }
  return "nothing was refused";
}

TEST(StepLists, StepsAreThoseOfDiffusers) {
  std::map<std::string, int> runs;
  for (const base::Json& run : base::read_json(TESSERA_TEST_DATA "/scheduler_lists.json")) {
    const std::string name = run["class"];
    SCOPED_TRACE(name + " " + run["config"].dump());
    const std::vector<double> timesteps = list_of(run, "timesteps"),
                              sigmas = list_of(run, "sigmas");
    const auto sampler = make_sampler(name, run["config"], "scheduler_config.json",
                                      {.steps = listed_steps(name, timesteps, sigmas),
                                       .tokens = run["tokens"],
                                       .timesteps = timesteps,
                                       .sigmas = sigmas});
    const std::vector<float> seen = times_of(*sampler), expected = run["seen"];
    ASSERT_EQ(seen.size(), expected.size());
    for (size_t i = 0; i < seen.size(); ++i) EXPECT_NEAR(seen[i], expected[i], 2e-4);
    const std::vector<float> last = walk_latents(*sampler).back(), x = run["x"];
    float size = 0;
    for (const float value : x) size = std::max(size, std::abs(value));
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(last[i], x[i], 3e-5 * double(size));
    ++runs[name];
  }
  for (const Scheduler& scheduler : schedulers()) {
    const bool takes = scheduler.timesteps != Timesteps::none || scheduler.sigmas != Sigmas::none;
    EXPECT_EQ(runs.contains(scheduler.name), takes) << scheduler.name;
  }
}

TEST(StepLists, ClassesWithoutListsRefuseThemByName) {
  for (const char* name : {"DDIMScheduler", "DEISMultistepScheduler", "CogVideoXDPMScheduler",
                           "EulerAncestralDiscreteScheduler", "UniPCMultistepScheduler"})
    EXPECT_NE(refused(name, "{}", {900, 100}, {}).find("`timesteps`: a " + std::string(name)),
              std::string::npos)
        << name;
  EXPECT_NE(refused("LCMScheduler", "{}", {}, {1, 0.5}).find("`sigmas`: a LCMScheduler"),
            std::string::npos);
  EXPECT_NE(refused("FlowMatchEulerDiscreteScheduler", "{}", {900}, {0.5}).find("give one"),
            std::string::npos);
  EXPECT_NE(refused("UniPCMultistepScheduler", "{}", {}, {0.5}).find("use_flow_sigmas only"),
            std::string::npos);
  EXPECT_NE(refused("DPMSolverMultistepScheduler", R"({"use_karras_sigmas": true})", {900}, {})
                .find("spreads sigmas itself"),
            std::string::npos);
  EXPECT_NE(refused("DPMSolverSinglestepScheduler",
                    R"({"use_flow_sigmas": true, "prediction_type": "flow_prediction"})", {900}, {})
                .find("takes none"),
            std::string::npos);
}

TEST(StepLists, ListsDescendWithinTheSchedule) {
  constexpr const char* kFlow = "FlowMatchEulerDiscreteScheduler";
  const double nan = std::nan(""), infinite = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& bad :
       std::vector<std::vector<double>>{{1001}, {-1}, {nan}, {infinite}, {500, 500}, {100, 900}})
    EXPECT_EQ(refused(kFlow, "{}", bad, {}).find("`timesteps`"), 0u) << bad.front();
  for (const std::vector<double>& bad :
       std::vector<std::vector<double>>{{1.5}, {-0.1}, {0.5, 0.5}, {0.1, 0.9}, {nan}})
    EXPECT_EQ(refused(kFlow, "{}", {}, bad).find("`sigmas`"), 0u) << bad.front();
  EXPECT_EQ(refused("DDPMScheduler", "{}", {1000}, {}).find("`timesteps`"), 0u);
  EXPECT_EQ(refused("LCMScheduler", "{}", {500.9, 500.1}, {}).find("`timesteps`"), 0u);
  EXPECT_EQ(refused("EulerDiscreteScheduler", "{}", {}, {5}).find("`sigmas`"), 0u);
  EXPECT_EQ(
      refused("UniPCMultistepScheduler",
              R"({"use_flow_sigmas": true, "prediction_type": "flow_prediction"})", {}, {0.5, 0})
          .find("`sigmas`"),
      0u);
  EXPECT_EQ(refused(kFlow, "{}", {}, {1, 0.5, 0}), "nothing was refused");
}

TEST(StepLists, TimestepsAreCutToWholeNumbers) {
  EXPECT_EQ(whole_timesteps({999.9, 3.2}, 1000), (std::vector<int64_t>{999, 3}));
  EXPECT_THROW(whole_timesteps({3.9, 3.2}, 1000), Error);
  EXPECT_EQ(listed_steps("EulerDiscreteScheduler", {}, {5, 1, 0}), 2);
  EXPECT_EQ(listed_steps("DDIMScheduler", {}, {}), 0);
}

}  // namespace
}  // namespace tessera::sample

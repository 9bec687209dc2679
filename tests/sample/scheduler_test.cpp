#include "sample/scheduler.h"

#include "sample/scheduler_settings.h"
#include "tessera/words.h"

namespace tessera::sample {
namespace {

TEST(Scheduler, EveryNameMakesASamplerFromAnEmptyConfiguration) {
  for (const Scheduler& s : schedulers()) {
    const auto sampler = sampler_of(s.name, "{}", 5, 16);
    const bool twice = s.option == SchedulerName::heun;
    EXPECT_EQ(sampler->steps(), twice ? 9 : 5) << s.name;
    for (int i = 0; i + 1 < sampler->steps(); i += twice ? 2 : 1)
      EXPECT_GT(sampler->timestep(i), sampler->timestep(i + 1)) << s.name;
  }
}

TEST(Scheduler, AnUnknownClassIsRefusedWithTheListOfWhatIsKnown) {
  const std::string says = refusal("TCDScheduler", "{}");
  EXPECT_NE(says.find("'TCDScheduler' is not supported"), std::string::npos) << says;
  EXPECT_NE(says.find("DPMSolverMultistepScheduler"), std::string::npos) << says;
}

TEST(Scheduler, OnlySolversOfAFlowFitADenoiserThatPredictsOne) {
  const base::Json plain = base::Json::object(),
                   flow{{"use_flow_sigmas", true}, {"prediction_type", "flow_prediction"}};
  int fit = 0;
  for (const Scheduler& s : schedulers()) {
    const auto made = [&](const base::Json& config) {
      try {
        make_sampler(s.name, config, "scheduler_config.json", {.steps = 4, .flow = true});
        return std::string();
      } catch (const Error& e) {
        return std::string(e.what());
      }
    };
    EXPECT_EQ(made(plain).empty(), s.flow == FlowPath::always) << s.name;
    EXPECT_EQ(made(flow).empty(), s.flow != FlowPath::never) << s.name;
    if (s.flow == FlowPath::never) {
      EXPECT_NE(made(flow).find(std::string("'") + s.name + "' does not solve a flow"),
                std::string::npos);
    }
    fit += s.flow != FlowPath::never;
  }
  EXPECT_EQ(fit, 5);
}

TEST(Scheduler, AnotherClassOverAFoldersConfiguration) {
  const SchedulerConfig sd3{"FlowMatchEulerDiscreteScheduler", base::Json{{"shift", 3.0}}};
  const SchedulerConfig unipc = other_scheduler(sd3, SchedulerName::unipc, true);
  EXPECT_EQ(unipc.name, "UniPCMultistepScheduler");
  EXPECT_EQ(unipc.config["flow_shift"], 3.0);
  EXPECT_EQ(unipc.config["prediction_type"], "flow_prediction");
  EXPECT_TRUE(unipc.config["use_flow_sigmas"]);
  const SchedulerConfig pixart{"DPMSolverMultistepScheduler", base::Json{{"beta_end", 0.01}}};
  const SchedulerConfig heun =
      other_scheduler(pixart, parse_scheduler("HeunDiscreteScheduler"), false);
  EXPECT_EQ(heun.name, "HeunDiscreteScheduler");
  EXPECT_EQ(heun.config, pixart.config);
  const SchedulerConfig cogvideox{"CogVideoXDDIMScheduler", base::Json::object()};
  EXPECT_EQ(other_scheduler(cogvideox, parse_scheduler("cogvideox-dpm"), false).name,
            "CogVideoXDPMScheduler");
  using S = SchedulerName;
  for (const auto& [folder, option, flow] : {std::tuple{sd3, S::heun, true},
                                             {pixart, S::flow_euler, false},
                                             {pixart, S::rectified_flow, false},
                                             {pixart, S::cogvideox_ddim, false},
                                             {cogvideox, S::euler, false}})
    EXPECT_THROW(other_scheduler(folder, option, flow), Error) << folder.name << word_of(option);
  EXPECT_THROW(parse_scheduler("hein"), Error);
}

TEST(Scheduler, APredictedSampleIsGivenByClassesThatTellIt) {
  const std::vector<float> start{0.5f, -2, 1, 0}, told{1, 0.25f, -1, 3};
  const Tensor x = Tensor::from(std::span<const float>(start), {2, 2}),
               out = Tensor::from(std::span<const float>(told), {2, 2});
  const base::Json config{{"prediction_type", "v_prediction"}, {"clip_sample", false}};
  int tell = 0;
  for (const Scheduler& s : schedulers()) {
    if (s.flow == FlowPath::always) continue;
    const auto stepped = [&](bool predicted) {
      History history;
      return make_sampler(s.name, config, "c",
                          {.steps = 1, .tokens = 2, .predicted_sample = predicted})
          ->step(0, out, x, x, history)
          .to_floats();
    };
    tell += s.tells_prediction;
    if (!s.tells_prediction) {
      EXPECT_EQ(stepped(true), stepped(false)) << s.name;
      continue;
    }
    // alpha * x - sigma * v, for any scheduler step.
    const std::vector<float> clean = stepped(true);
    const double alpha = (clean[0] * told[1] - clean[1] * told[0]) /
                         (start[0] * double(told[1]) - start[1] * double(told[0]));
    for (size_t i = 0; i < clean.size(); ++i) {
      const double sigma = (alpha * start[i] - clean[i]) / told[i];
      EXPECT_NEAR(sigma, (alpha * start[0] - clean[0]) / told[0], 1e-4) << s.name;
    }
  }
  EXPECT_EQ(tell, 7);
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
      {"EulerDiscreteScheduler", R"({"beta_end": 0.999})", "leave nothing of a sample"},
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

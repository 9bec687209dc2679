#include "load/few_steps.h"

#include <gtest/gtest.h>

#include "load/safetensors.h"
#include "load/scratch_folder.h"

namespace tessera::load {
namespace {

TEST(FewSteps, PublishedNamesTellStepsAndGuidance) {
  using Few = std::optional<FewSteps>;
  EXPECT_EQ(few_steps_of("Hyper-FLUX.1-dev-8steps-lora"), Few({8, false}));
  EXPECT_EQ(few_steps_of("Hyper-SD3-4steps-CFG-lora"), Few({4, true}));
  EXPECT_EQ(few_steps_of("sdxl_lightning_4step_lora"), Few({4, false}));
  EXPECT_EQ(few_steps_of("lightx2v_4step_cfg_step_distill"), Few({4, false}));
  EXPECT_EQ(few_steps_of("Hyper-FLUX.1-dev-16steps-lora"), Few({16, false}));
  EXPECT_EQ(few_steps_of("PCM 2-Step"), Few({2, false}));
}

TEST(FewSteps, OtherNamesTellNothing) {
  for (const char* name :
       {"", "FLUX.1-Turbo-Alpha", "my_style_8steps", "turbo_style_2500steps", "hyper_000008",
        "turbo-0steps", "turbo-33steps", "hyper steps", "notturbo 4steps", "step", "turbosteps",
        "turbo 12345678901234567890steps"})
    EXPECT_FALSE(few_steps_of(name)) << name;
  EXPECT_TRUE(says_turbo("stabilityai/stable-diffusion-3.5-large-turbo"));
  EXPECT_FALSE(says_turbo("nitroturbo"));
}

TEST(FewSteps, AnAdapterTellsThemByNameOrMetadata) {
  const ScratchFolder folder;
  const auto written = [&](const std::string& name,
                           const std::map<std::string, std::string>& metadata) {
    const std::string path = folder.path() + "/" + name;
    write_safetensors(path, std::map<std::string, tensor::Tensor>{}, metadata);
    return few_steps_of_adapter(path);
  };
  EXPECT_EQ(written("lightning_2step.safetensors", {})->steps, 2);
  EXPECT_EQ(written("a.safetensors", {{"modelspec.title", "Turbo, 6 steps"}})->steps, 6);
  EXPECT_EQ(written("b.safetensors", {{"modelspec.usage_hint", "hyper: 8 steps, CFG 5"}}),
            FewSteps({8, true}));
  EXPECT_EQ(written("c.safetensors", {{"ss_output_name", "lcm-3steps"}})->steps, 3);
  EXPECT_FALSE(
      written("d.safetensors", {{"ss_max_train_steps", "8"}, {"comment", "turbo 8steps"}}));
}

}  // namespace
}  // namespace tessera::load

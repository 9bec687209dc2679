#include "diffusion/plan_steps.h"

#include <filesystem>

#include "load/safetensors.h"
#include "whole/diffusers_golden.h"

namespace tessera {
namespace {

const std::string kFlux = TESSERA_TEST_DATA "/diffusers/flux_dev/model";
const std::string kAdapter =
    TESSERA_TEST_DATA "/features/lora/adapters/flux_comfy_down.safetensors";

GenerateRequest request(const golden::Scratch& scratch) {
  GenerateRequest q;
  q.embeddings = TESSERA_TEST_DATA "/features/image/text_flux_dev.safetensors";
  q.width = 64, q.height = 32;
  q.decode = false;
  q.save_latents = scratch / "latents.safetensors";
  q.trace = scratch / "trace.safetensors";
  q.overwrite = true;
  return q;
}

GenerateResult run(const GenerateRequest& q) {
  return Model::open(kFlux, golden::options(Precision::f32)).generate(q);
}

std::string refusal(const GenerateRequest& q) {
  try {
    run(q);
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was refused";
}

bool says(const GenerateResult& result, const std::string& words) {
  return std::ranges::any_of(result.report.notes, [&](const std::string& note) {
    return note.find(words) != std::string::npos;
  });
}

TEST(PlanSteps, ListsSayTheSteps) {
  const golden::Scratch scratch;
  GenerateRequest q = request(scratch);
  q.timesteps = {900, 500.5, 20};
  EXPECT_EQ(run(q).steps, 3);
  EXPECT_EQ(load::SafetensorsFile(q.trace).get("timesteps").to_floats(),
            (std::vector<float>{900, 500.5f, 20}));
  q.timesteps = {};
  q.sigmas = {1, 0.4};
  q.steps = 2;
  EXPECT_EQ(run(q).steps, 2);
  q.steps = 3;
  EXPECT_NE(refusal(q).find("2 steps; leave one of them out"), std::string::npos);
  q.steps = {};
  q.timesteps = {500};
  EXPECT_NE(refusal(q).find("give one of them"), std::string::npos);
  q.sigmas = {};
  q.scheduler = SchedulerName::unipc;
  EXPECT_NE(refusal(q).find("a UniPCMultistepScheduler takes no such list"), std::string::npos);
}

TEST(PlanSteps, FewStepAdaptersBringTheirSteps) {
  const golden::Scratch scratch;
  const std::string turbo = scratch / "Hyper-FLUX.1-dev-2steps-lora.safetensors";
  std::filesystem::copy_file(kAdapter, turbo);
  GenerateRequest q = request(scratch);
  q.loras = {{turbo, 0.5}};
  const GenerateResult few = run(q);
  EXPECT_EQ(few.steps, 2);
  EXPECT_TRUE(says(few, "is made for 2 steps"));
  q.steps = 1;
  EXPECT_EQ(run(q).steps, 1);
  q.steps = 12;
  q.decode = true;
  EXPECT_TRUE(says(run(q), "12 steps are many for this model, which is made for 2"));
}

TEST(PlanSteps, UnusualStepsAndGuidanceAreOneNote) {
  const golden::Scratch scratch;
  GenerateRequest q = request(scratch);
  q.steps = 2;
  EXPECT_FALSE(says(run(q), "for this model")) << "latents alone";
  q.decode = true;
  EXPECT_TRUE(says(run(q), "2 steps are few for this model, which usually takes 28"));
  q.guidance = 20;
  EXPECT_TRUE(says(run(q), "28; guidance 20 is high for this model, which usually takes 3.5"));
  q.steps = 6;
  q.guidance = 5;
  EXPECT_FALSE(says(run(q), "for this model"));
}

}  // namespace
}  // namespace tessera

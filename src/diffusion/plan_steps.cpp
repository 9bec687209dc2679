#include "diffusion/plan_steps.h"

#include <cmath>
#include <filesystem>

#include "base/fail.h"
#include "base/printable.h"
#include "load/few_steps.h"
#include "sample/scheduler.h"
#include "sample/step_lists.h"

namespace tessera::diffusion {
namespace {

constexpr int kFewSteps = 16;  // a model that runs in so many is distilled

sample::SchedulerConfig scheduler_of(const runtime::ModelState& state,
                                     const GenerateRequest& request) {
  const load::Component& part = state.folder.component("scheduler");
  sample::SchedulerConfig own{part.class_name, part.config};
  if (request.scheduler == SchedulerName::automatic) return own;
  return sample::other_scheduler(own, request.scheduler, state.spec->predicts_flow);
}

// The steps of the request's lists; 0: it has none.
int steps_of_lists(const runtime::ModelState& state, const GenerateRequest& request) {
  const char* const name = request.sigmas.empty() ? "timesteps" : "sigmas";
  if (request.timesteps.empty() && request.sigmas.empty()) return 0;
  require(state.spec->takes_text(), ErrorCode::usage,
          "`{}`: the scheduler of this model takes no such list; leave it out", name);
  const int steps =
      sample::listed_steps(scheduler_of(state, request).name, request.timesteps, request.sigmas);
  require(request.steps.value_or(steps) == steps, ErrorCode::usage,
          "`steps` {}: the list `{}` has {} steps; leave one of them out", *request.steps, name,
          steps);
  return steps;
}

// Those of the family or folder, and of a few-step adapter over them.
RunSettings usual_run(const runtime::ModelState& state, const GenerateRequest& request,
                      std::vector<std::string>& notes) {
  const models::PipelineSpec& spec = *state.spec;
  RunSettings usual{state.defaults.steps, state.defaults.guidance};
  for (const Lora& lora : request.loras) {
    if (lora.strength == 0) continue;
    const auto few = load::few_steps_of_adapter(lora.file);
    if (!few) continue;
    usual.steps = few->steps;
    const bool plain = !few->guided && !spec.embeds_guidance && usual.guidance > spec.no_guidance;
    if (plain) usual.guidance = spec.no_guidance;
    if (request.steps && (request.guidance || !plain)) continue;
    notes.push_back(
        fmt::format("{} is made for {} steps{}, which this run takes unless it is told otherwise",
                    base::printable(std::filesystem::path(lora.file).filename().string()),
                    few->steps, few->guided || spec.embeds_guidance ? "" : " without guidance"));
  }
  return usual;
}

void note_unusual(const models::PipelineSpec& spec, const GenerateRequest& request,
                  const RunSettings& run, const RunSettings& usual,
                  std::vector<std::string>& notes) {
  if (!spec.takes_text() || !request.decode) return;  // latents alone are for comparison
  std::string message;
  const bool few = usual.steps <= kFewSteps;
  const bool chooses_steps = request.steps || !request.timesteps.empty() || !request.sigmas.empty();
  if (chooses_steps && few && run.steps > 4 * usual.steps)
    message = fmt::format("{} steps are many for this model, which is made for {}", run.steps,
                          usual.steps);
  else if (chooses_steps && !few && run.steps * 5 < usual.steps)
    message = fmt::format("{} step{} few for this model, which usually takes {}", run.steps,
                          run.steps == 1 ? " is" : "s are", usual.steps);
  const float none = spec.no_guidance, most = 3 * usual.guidance;
  const bool unguided = !spec.embeds_guidance && usual.guidance <= none;
  if (request.guidance && !spec.distilled && run.guidance > (unguided ? none : most))
    message +=
        fmt::format("{}guidance {:g} is {} for this model{}", message.empty() ? "" : "; ",
                    double{run.guidance}, unguided ? "unusual" : "high",
                    unguided ? ", which is made to run without"
                             : fmt::format(", which usually takes {:g}", double{usual.guidance}));
  if (!message.empty()) notes.push_back(message);
}

}  // namespace

RunSettings run_settings(const runtime::ModelState& state, const GenerateRequest& request,
                         std::vector<std::string>& notes) {
  const int listed = steps_of_lists(state, request);
  const RunSettings usual = usual_run(state, request, notes);
  const RunSettings run{listed > 0 ? listed : request.steps.value_or(usual.steps),
                        request.guidance.value_or(usual.guidance)};
  note_unusual(*state.spec, request, run, usual, notes);
  return run;
}

void choose_sampler(const runtime::ModelState& state, const GenerateRequest& request, int steps,
                    Job& job) {
  const models::PipelineSpec& spec = *state.spec;
  const load::Component& part = state.folder.component("scheduler");
  sample::SchedulerConfig config = scheduler_of(state, request);
  if (spec.size_shift && config.config.is_object())
    config.config["base_shift"] = config.config["max_shift"] =
        spec.size_shift(job.planned.layout.latent_tokens(), steps);
  job.planned.sampler_name = config.name;
  const int skip = starts_from_image(spec, request) ? left_out_steps(spec, request, steps) : 0;
  job.planned.sampler =
      sample::make_sampler(config.name, config.config, part.folder + "/scheduler_config.json",
                           {.steps = steps,
                            .tokens = job.planned.layout.latent_tokens(),
                            .even_sigmas = spec.even_sigmas,
                            .float_sigmas = spec.float_sigmas,
                            .flow = spec.predicts_flow,
                            .max_shift = spec.max_shift,
                            .predicted_sample = spec.one_step_predicts && steps == 1,
                            .skip = skip,
                            .timesteps = request.timesteps,
                            .sigmas = request.sigmas});
}

void note_passes(const runtime::ModelState& state, const GenerateRequest& request, int steps,
                 Job& job) {
  const sample::Sampler& sampler = *job.planned.sampler;
  if (starts_from_image(*state.spec, request)) {
    const int run = steps - left_out_steps(*state.spec, request, steps);
    job.planned.notes.push_back(fmt::format(
        "starts from the image: the last {} of {} steps run{}", run, steps,
        sampler.steps() == run ? "" : fmt::format(", in {} forward passes", sampler.steps())));
    return;
  }
  if (sampler.steps() != steps)
    job.planned.notes.push_back(
        fmt::format("{} steps of this scheduler are {} forward passes", steps, sampler.steps()));
  const base::Json& config = state.folder.component("scheduler").config;
  const auto it = config.find("num_train_timesteps");
  const double trained = it != config.end() && it->is_number() ? it->get<double>() : 1000;
  if (sampler.timestep(0) < trained / 2)
    job.planned.notes.push_back(
        fmt::format("step 1 of {} is at timestep {:.0f} of {:.0f}, where the model expects an "
                    "image with little "
                    "noise, and it begins with noise alone: take more `steps`",
                    steps, sampler.timestep(0), trained));
  bool draws = false;
  for (int i = 0; i < sampler.steps(); ++i) draws = draws || sampler.needs_noise(i);
  if (draws && state.spec->predicts_flow)
    job.planned.notes.push_back(
        "the noise of the steps follows `seed`; the pipeline of diffusers draws it from PyTorch's "
        "global generator, so its image is another one");
}

}  // namespace tessera::diffusion

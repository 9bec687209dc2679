#include <sys/resource.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/fail.h"
#include "base/machine_memory.h"
#include "base/stopwatch.h"
#include "engine/denoise.h"
#include "engine/model_state.h"
#include "kernels/isa.h"
#include "media/png.h"

namespace tessera {
namespace {

using tensor::Tensor;

using engine::Job;

void check_memory(const Model::State& state, const GenerateRequest& request, const Job& job) {
  const base::Json* vae =
      state.has_vae() && request.decode ? &state.folder.component("vae").config : nullptr;
  const auto have = static_cast<double>(base::usable_memory());
  const double latents = double(job.layout.tokens()) * double(job.layout.token_channels()) *
                         job.pictures() * 4 * sizeof(float);
  require(latents < have, ErrorCode::memory,
          "this run ({} of {} x {} latent pixels) would need {:.1f} GB for its latents alone, the "
          "machine "
          "has {:.1f}: use a smaller size or --count",
          job.pictures(), job.layout.size[2], job.layout.size[1], latents / 1e9, have / 1e9);
  const auto need = engine::estimate(*state.recipe, state.dtype(), job.layout, job.pictures(),
                                     job.guidance.branches(), vae);
  require(
      double(need.peak) < 0.95 * have, ErrorCode::memory,
      "this run would need about {:.1f} GB (weights {:.1f}, activations {:.1f}), the machine has "
      "{:.1f}: use a smaller size or --count",
      double(need.peak) / 1e9, double(need.weights) / 1e9, double(need.activations) / 1e9,
      have / 1e9);
}

Tensor timesteps_of(const sample::Sampler& sampler) {
  std::vector<float> times;
  for (int i = 0; i < sampler.steps(); ++i) times.push_back(sampler.timestep(i));
  return Tensor::from(std::span<const float>(times), {sampler.steps()});
}

void finish_report(const Model::State& state, Report& report) {
  report.version = kVersion;
  report.model = state.name;
  report.plan = to_string(state.options.plan);
  report.device = "cpu";
  report.precision = name_of(state.dtype());
  report.instruction_set = kernels::name_of(kernels::active_isa());
  report.threads = state.pool->threads();
  report.ranks = state.options.plan.world();
  report.flops = state.meter->total().flops;
  for (int i = 0; i < tensor::kMemoryClasses; ++i) {
    const auto memory_class = static_cast<tensor::MemoryClass>(i);
    report.peak_bytes[tensor::name_of(memory_class)] = state.memory->peak(memory_class);
  }
  report.peak_bytes["total"] = state.memory->peak();
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  report.peak_resident_bytes = int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace

GenerateResult Model::generate(const GenerateRequest& request, const RunControl& control) {
  State& state = *state_;
  GenerateResult result;
  const Job job = engine::plan_job(state, request, control);
  result.steps = job.sampler->steps();
  result.guidance = job.guidance_asked;
  engine::check_plan(state, job);
  check_memory(state, request, job);
  const tensor::BindScope bind(state.scope());
  const base::Stopwatch clock;
  if (control.on_progress) control.on_progress({"load", 0, 0, 0});
  engine::load_ranks(state);
  result.report.phase_seconds["load"] = clock.seconds();
  engine::Trace trace(job, !request.trace.empty());
  const Tensor tokens = engine::denoise(state, request, control, job, trace, result.report);
  if (state.options.processes && state.options.processes->rank != 0) {
    result.elsewhere = true;
    return result;
  }
  const Tensor latents = nn::latent_of_tokens(tokens, job.layout, job.form);
  if (request.decode) {
    const base::Stopwatch decoding;
    const Tensor image =
        engine::decode(state, control, job, tokens, result.pictures, trace.wanted());
    if (trace.wanted()) trace.plain(state.video() ? "video" : "image", image);
    result.report.phase_seconds["decode"] = decoding.seconds();
  }
  result.latents = latents.to_floats();
  if (trace.wanted()) trace.plain("timesteps", timesteps_of(*job.sampler));
  if (!request.save_latents.empty())
    load::write_safetensors(request.save_latents, {{"latents", latents}});
  trace.write(request.trace);
  finish_report(state, result.report);
  return result;
}

void save_png(const Picture& picture, const std::string& path,
              const std::vector<std::pair<std::string, std::string>>& text) {
  media::write_png(path,
                   {static_cast<int>(picture.width), static_cast<int>(picture.height), picture.rgb},
                   {text.begin(), text.end()});
}

}  // namespace tessera

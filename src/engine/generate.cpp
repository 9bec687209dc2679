#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "base/fail.h"
#include "base/machine_memory.h"
#include "base/output_file.h"
#include "engine/denoise.h"
#include "engine/model_state.h"
#include "kernels/isa.h"
#include "media/png.h"
#include "nn/local_spatial.h"
#include "ops/elementwise.h"

namespace tessera {
namespace {

using tensor::DType;
using tensor::Tensor;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

using engine::Job;

std::string scheduler_of(const Model::State& state, const GenerateRequest& request) {
  if (request.scheduler != "auto") {
    require(request.scheduler == "rectified-flow" || request.scheduler == "ddpm", ErrorCode::usage,
            "scheduler '{}' is not known; known are auto, rectified-flow and ddpm",
            request.scheduler);
    return request.scheduler;
  }
  if (!state.folder.has("scheduler")) return state.recipe->scheduler();
  const std::string& name = state.folder.component("scheduler").class_name;
  if (name == "RectifiedFlow") return "rectified-flow";
  if (name == "DDPM" || name == "DDPMLearnedRange") return "ddpm";
  fail(ErrorCode::model,
       "{}: the scheduler '{}' is not supported; supported are RectifiedFlow and DDPM",
       state.folder.path, name);
}

void read_initial(const GenerateRequest& request, Job& job) {
  const load::SafetensorsFile file(request.initial_latents);
  for (const auto& [name, entry] : file.entries()) job.given[name] = file.get(name);
  const auto latents = job.given.find("latents");
  require(latents != job.given.end(), ErrorCode::usage, "'{}' holds no tensor 'latents'",
          request.initial_latents);
  const Tensor& x = latents->second;
  const tensor::Shape expected = job.latent_shape();
  require(x.shape() == expected && tensor::is_float(x.dtype()), ErrorCode::usage,
          "'{}': 'latents' is {} {}; expected floats {} for these classes and this size",
          request.initial_latents, name_of(x.dtype()), x.shape().str(), expected.str());
}

Job plan_job(const Model::State& state, const GenerateRequest& request) {
  require(state.recipe != nullptr, ErrorCode::model,
          "'{}' holds no transformer; it can only be used with 'tessera forward'", state.name);
  require(request.count >= 1 && request.count <= 100000, ErrorCode::usage,
          "--count {}: expected a number from 1 to 100000", request.count);
  require(request.guidance >= 0 && request.guidance <= 1000, ErrorCode::usage,
          "--guidance {}: expected a number from 0 to 1000", request.guidance);
  require(
      state.recipe->classes() > 0, ErrorCode::model,
      "'{}' draws from a prompt, and this version draws from classes only; 'tessera forward' runs "
      "its parts",
      state.name);
  Job job;
  const int64_t factor = state.vae_factor();
  job.layout = state.recipe->layout(engine::latent_pixels(request.height, factor, "height"),
                                    engine::latent_pixels(request.width, factor, "width"));
  for (int number :
       engine::class_numbers(request.classes, state.class_names, state.recipe->classes()))
    job.classes.insert(job.classes.end(), static_cast<size_t>(request.count), number);
  job.scheduler = scheduler_of(state, request);
  job.sampler = job.scheduler == "ddpm" ? sample::ddpm_learned_range(request.steps)
                                        : sample::rectified_flow(request.steps);
  job.guidance = {request.guidance, state.recipe->guided_channels(job.scheduler)};
  require(!request.decode || state.has_vae(), ErrorCode::model,
          "'{}' has no VAE, so it can only save latents: add --latents-only --save-latents FILE",
          state.name);
  if (!request.initial_latents.empty()) read_initial(request, job);
  for (const std::string& path : {request.save_latents, request.trace})
    if (!path.empty()) base::check_writable(path);
  state.check_transformer();
  if (request.decode) state.check_vae();
  return job;
}

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

// One picture at a time: the memory of a decode does not grow with their number.
Tensor decode(Model::State& state, const RunControl& control, const Tensor& latents,
              std::vector<Picture>& pictures, const std::vector<std::string>& labels, bool keep) {
  const auto vae = state.load_vae();
  nn::LocalSpatial spatial;
  const auto begin = Clock::now();
  const int count = static_cast<int>(latents.size(0));
  std::vector<Tensor> kept;
  for (int i = 0; i < count; ++i) {
    require(!control.stop.stop_requested(), ErrorCode::cancelled, "stopped before picture {} of {}",
            i + 1, count);
    if (control.on_progress) control.on_progress({"decode", i, count, seconds_since(begin)});
    const Tensor image = vae->decode(vae->unscale(latents.slice(0, i, i + 1)), spatial);
    Tensor unit = Tensor::empty({image.size(1), image.size(2), image.size(3)}, DType::f32);
    for (int64_t j = 0; j < unit.elements(); ++j)
      unit.data<float>()[j] = std::clamp(image.data<float>()[j] * 0.5f + 0.5f, 0.0f, 1.0f);
    media::Image bytes = media::to_image(unit);
    pictures.push_back(
        {bytes.width, bytes.height, std::move(bytes.rgb), labels[static_cast<size_t>(i)]});
    if (keep) kept.push_back(unit.reshape({1, unit.size(0), unit.size(1), unit.size(2)}));
  }
  if (control.on_progress) control.on_progress({"decode", count, count, seconds_since(begin)});
  return keep ? ops::concat_rows(kept) : Tensor();
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
  Job job = plan_job(state, request);
  engine::check_plan(state, job);
  check_memory(state, request, job);
  const tensor::BindScope bind(state.scope());
  const auto begin = Clock::now();
  if (control.on_progress) control.on_progress({"load", 0, 0, 0});
  engine::load_ranks(state);
  result.report.phase_seconds["load"] = seconds_since(begin);
  engine::Trace trace(job.layout, !request.trace.empty());
  const Tensor latents = engine::denoise(state, request, control, job, trace, result.report);
  if (state.options.processes && state.options.processes->rank != 0) {
    result.elsewhere = true;
    return result;
  }
  std::vector<std::string> labels;
  for (int number : job.classes)
    labels.push_back(state.class_names.empty() ? "class " + std::to_string(number)
                                               : state.class_names[static_cast<size_t>(number)]);
  if (request.decode) {
    const auto start = Clock::now();
    const Tensor image = decode(state, control, latents, result.pictures, labels, trace.wanted());
    if (trace.wanted()) trace.plain("image", image);
    result.report.phase_seconds["decode"] = seconds_since(start);
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

#include <sys/resource.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/fail.h"
#include "base/stop.h"
#include "base/stopwatch.h"
#include "engine/state.h"
#include "kernels/isa.h"
#include "media/jpeg.h"
#include "media/png.h"
#include "media/video.h"
#include "media/webp.h"
#include "pipeline/agree.h"
#include "pipeline/check_request.h"
#include "pipeline/denoise.h"
#include "pipeline/memory_plan.h"

namespace tessera {
namespace {

using tensor::Tensor;

using pipeline::Job;

Tensor timesteps_of(const sample::Sampler& sampler) {
  std::vector<float> times;
  for (int i = 0; i < sampler.steps(); ++i) times.push_back(sampler.timestep(i));
  return Tensor::from(std::span<const float>(times), {sampler.steps()});
}

void finish_report(const Model::State& state, Report& report) {
  report.version = kVersion;
  report.model = state.name;
  report.plan = to_string(state.options.plan);
  report.device = pipeline::device_name(state.place);
  report.precision = name_of(state.dtype());
  if (state.expert_dtype()) report.precision += ", experts i8";
  report.instruction_set = kernels::name_of(kernels::active_isa());
  report.threads = state.pool->threads();
  report.ranks = state.options.plan.world();
  report.flops = state.meter->total().flops;
  if (state.options.processes)  // what the others did
    for (size_t rank = 1; rank < report.per_rank.size(); ++rank)
      report.flops += report.per_rank[rank].flops;
  report.peak_bytes = pipeline::peaks_of(*state.memory);
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  report.peak_resident_bytes = int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace

GenerateResult Model::generate(const GenerateRequest& request, const RunControl& control) {
  pipeline::check_request(request);
  State& state = this->state();
  const pipeline::Working working(state);
  const base::BindStop stop(control.stop);
  GenerateResult result;
  if (state.options.processes)
    pipeline::agree(*state.options.processes->world, pipeline::terms_of(state, request));
  Job job = pipeline::plan_job(state, request, control);
  result.steps = job.sampler->steps();
  result.guidance = job.guidance_asked;
  result.sampler = job.sampler_name;
  pipeline::check_plan(state, job);
  pipeline::plan_memory(state, request, job);
  result.report.notes = job.notes;
  if (control.on_note)
    for (const std::string& note : job.notes) control.on_note(note);
  const tensor::BindScope bind(state.scope());
  const base::Stopwatch clock;
  if (control.on_progress) control.on_progress({"load", 0, 0, 0});
  pipeline::load_ranks(state);
  result.report.phase_seconds["load"] = clock.seconds();
  pipeline::Trace trace(job, !request.trace.empty());
  const Tensor tokens = pipeline::denoise(state, request, control, job, trace, result.report);
  if (!state.options.keep_parts) state.denoisers.clear();
  if (state.options.processes && state.options.processes->rank != 0) {
    result.elsewhere = true;
    return result;
  }
  const Tensor latents = nn::latent_of_tokens(tokens, job.layout, job.form);
  if (request.decode) {
    const base::Stopwatch decoding;
    const Tensor image =
        pipeline::decode(state, control, job, tokens, result.pictures, trace.wanted());
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

namespace {

media::Image image_of(const Picture& picture) {
  return {static_cast<int>(picture.width), static_cast<int>(picture.height), picture.rgb};
}

using Texts = std::vector<std::pair<std::string, std::string>>;

}  // namespace

void save_png(const Picture& picture, const std::string& path, const Texts& text,
              const std::stop_token& stop) {
  const base::BindStop bind(stop);
  media::write_png(path, image_of(picture), {text.begin(), text.end()});
}

void save_webp(const Picture& picture, const std::string& path, const Texts& text,
               const std::stop_token& stop) {
  const base::BindStop bind(stop);
  media::write_webp(path, image_of(picture), {text.begin(), text.end()});
}

void save_jpeg(const Picture& picture, const std::string& path, const Texts& text,
               const std::stop_token& stop) {
  const base::BindStop bind(stop);
  media::write_jpeg(path, image_of(picture), {text.begin(), text.end()});
}

void save_mp4(std::span<const Picture> frames, double rate, const std::string& path,
              const Texts& text, const std::stop_token& stop) {
  const base::BindStop bind(stop);
  std::vector<media::Image> images;
  for (const Picture& frame : frames) images.push_back(image_of(frame));
  media::write_mp4(path, images, rate, {text.begin(), text.end()});
}

}  // namespace tessera

#include "diffusion/plan_job.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/fail.h"
#include "base/printable.h"
#include "diffusion/conditioning.h"
#include "diffusion/encode_images.h"
#include "diffusion/plan_steps.h"
#include "diffusion/plan_text.h"
#include "diffusion/reference_images.h"
#include "diffusion/sizes.h"
#include "load/safetensors.h"
#include "parallel/reuse/rules.h"
#include "runtime/classes.h"
#include "runtime/load_adapters.h"
#include "runtime/tensor_view.h"
#include "sample/scheduler.h"
#include "tessera/run_files.h"
#include "tessera/words.h"

namespace tessera::diffusion {
namespace {

using tensor::Tensor;

constexpr int64_t kMostImages = 100'000;  // samples of a request

// Checks the count before anything is allocated for each image.
int image_count(int64_t subjects, const GenerateRequest& request) {
  const int64_t count = std::max<int64_t>(subjects, 1) * request.count;
  require(count <= kMostImages, ErrorCode::usage,
          "{} images (`count` {} of {}): expected at most {} in a request", count, request.count,
          subjects, kMostImages);
  return static_cast<int>(count);
}

std::string class_scheduler(const runtime::ModelState& state, const GenerateRequest& request) {
  const SchedulerName scheduler = request.scheduler;
  if (scheduler != SchedulerName::automatic) {
    require(scheduler == SchedulerName::rectified_flow || scheduler == SchedulerName::ddpm,
            ErrorCode::usage,
            "`scheduler` {}: not one that fits this model; those are auto, rectified-flow, ddpm",
            word_of(scheduler));
    return word_of(scheduler);
  }
  const bool has_scheduler =
      state.folder.has("scheduler") || state.folder.absent.contains("scheduler");
  if (!has_scheduler) return state.spec->scheduler;
  const std::string& name = state.folder.component("scheduler").class_name;
  if (name == "RectifiedFlow") return "rectified-flow";
  if (name == "DDPM" || name == "DDPMLearnedRange") return "ddpm";
  fail(ErrorCode::model,
       "{}: the scheduler '{}' is not supported; supported are RectifiedFlow and DDPM",
       state.folder.path, name);
}

Tensor given_numbers(const load::SafetensorsFile& file, const std::string& name) {
  return finite(file.get(name), name, file.path());
}

void read_initial(const GenerateRequest& request, Job& job) {
  require(request.initial_latents.empty() || request.initial_tensors.empty(), ErrorCode::usage,
          "initial latents come from a file or from memory, not from both");
  if (request.initial_latents.empty()) {
    for (const auto& [name, view] : request.initial_tensors)
      job.asked.given[name] = finite(runtime::tensor_of(name, view), name, job.asked.given_by);
  } else {
    const load::SafetensorsFile file(request.initial_latents);
    job.asked.given_by = request.initial_latents;
    for (const auto& [name, entry] : file.entries())
      job.asked.given[name] = given_numbers(file, name);
  }
  const auto latents = job.asked.given.find("latents");
  require(latents != job.asked.given.end(), ErrorCode::usage, "'{}' holds no tensor 'latents'",
          job.asked.given_by);
  const Tensor& x = latents->second;
  const tensor::Shape expected = job.latent_shape();
  require(x.shape() == expected && tensor::is_float(x.dtype()), ErrorCode::usage,
          "'{}': 'latents' is {} {}; expected floats {} for these {} and this size",
          job.asked.given_by, name_of(x.dtype()), x.shape().str(), expected.str(),
          job.prefix() > 0 ? "prompts" : "classes");
}

void check_subject(const runtime::ModelState& state, const GenerateRequest& request) {
  if (state.spec->text_inputs.empty()) {
    require(request.prompts.empty() && request.embeddings.empty(), ErrorCode::usage,
            "'{}' takes classes, not text: give `classes`", state.name);
    require(!request.negative_prompt, ErrorCode::usage,
            "`negative_prompt`: '{}' reads no text; leave it out", state.name);
  } else
    require(request.classes.empty(), ErrorCode::usage,
            "'{}' takes text, not classes: give `prompt`", state.name);
  require(request.prompts.empty() || request.embeddings.empty(), ErrorCode::usage,
          "give prompts or `embeddings`, not both");
}

int64_t guided_channels(const models::PipelineSpec& spec, const std::string& scheduler) {
  const auto other = spec.guided_channels_of.find(scheduler);
  return other == spec.guided_channels_of.end() ? spec.guided_channels : other->second;
}

void choose_class_sampler(const runtime::ModelState& state, const GenerateRequest& request,
                          int steps, Job& job) {
  const std::string scheduler = class_scheduler(state, request);
  job.planned.sampler_name = scheduler;
  job.planned.sampler =
      scheduler == "ddpm" ? sample::ddpm_learned_range(steps) : sample::rectified_flow(steps);
  job.planned.guidance = {job.planned.guidance_asked, guided_channels(*state.spec, scheduler)};
}

void plan_classes(const runtime::ModelState& state, const GenerateRequest& request, int steps,
                  Job& job) {
  std::vector<int> classes;
  for (int number : runtime::class_numbers(request.classes, state.class_names, state.spec->classes))
    classes.insert(classes.end(), static_cast<size_t>(request.count), number);
  for (int number : classes)
    job.planned.labels.push_back(state.class_names.empty()
                                     ? "class " + std::to_string(number)
                                     : state.class_names[static_cast<size_t>(number)]);
  choose_class_sampler(state, request, steps, job);
  const nn::Geometry geometry = state.geometry();
  require(job.planned.sampler_name != "ddpm" || geometry.channels_out == 2 * geometry.channels_in,
          ErrorCode::model,
          "'{}': ddpm reads variances beside the noise, and this transformer predicts none; if it "
          "predicts a flow, use `scheduler` rectified-flow",
          state.name);
  job.asked.conditioning = state.spec->conditioning(classes, job.planned.guidance.branches());
}

void plan_rescale(const models::PipelineSpec& spec, const GenerateRequest& request, Job& job) {
  const float phi = request.guidance_rescale;
  require(phi == 0 || job.planned.guidance.branches(), ErrorCode::usage,
          "`guidance_rescale` {}: this run has no guidance to rescale; it needs {}", phi,
          spec.embeds_guidance ? "`true_guidance` above 1 with `negative_prompt`"
          : spec.takes_text()  ? fmt::format("`guidance` above {}", spec.no_guidance)
                               : "`guidance` other than 1");
  job.planned.guidance.rescale = phi;
  if (!job.planned.guidance.branches()) return;  // note_without_effect() reports the case
  job.planned.guidance.limit = request.cfg_normalization;
  job.planned.guidance.from = request.guidance_start;
  job.planned.guidance.until = request.cfg_truncation;
}

// Notes options of the request without effect.
void note_without_effect(const runtime::ModelState& state, const GenerateRequest& request,
                         Job& job) {
  const models::PipelineSpec& spec = *state.spec;
  const auto note = [&](const std::string& option, const std::string& reason) {
    job.planned.notes.push_back(option + " has no effect: " + reason);
  };
  const bool embeds = spec.embeds_guidance, has_embeddings = !request.embeddings.empty();
  if (state.folder.kind == load::FolderKind::pipeline && !spec.pipelines.empty() &&
      std::ranges::count(spec.pipelines, state.folder.class_name) == 0)
    job.planned.notes.push_back(
        fmt::format("this folder is of a {}, which is computed as a {}: from text "
                    "alone",
                    base::printable(state.folder.class_name), spec.pipelines.front()));
  const auto inputs = spec.forward_names.conditioning;
  const bool distilled = embeds && std::count(inputs.begin(), inputs.end(), "guidance") == 0;
  if (request.negative_prompt && !job.planned.guidance.branches())
    note("`negative_prompt`",
         fmt::format("it needs {} above {}, which is {}", embeds ? "`true_guidance`" : "`guidance`",
                     embeds ? 1 : spec.no_guidance,
                     embeds ? request.true_guidance : job.planned.guidance_asked));
  else if (request.negative_prompt && has_embeddings)
    note("`negative_prompt`", "`embeddings` holds what it would become");
  if (request.guidance && *request.guidance > 1 && spec.distilled)
    note(fmt::format("`guidance` {}", *request.guidance),
         "this model is distilled to run without ('is_distilled')");
  if (request.negative_prompt && job.planned.guidance.branches() && spec.empty_negative)
    note("`negative_prompt`",
         "guidance of this model leads away from the empty text, as in "
         "diffusers");
  if (request.guidance && distilled)
    note(
        fmt::format("`guidance` {}", *request.guidance),
        "this model takes none ('guidance_embeds' is false); `true_guidance` adds a second branch");
  if (request.guidance && !embeds && *request.guidance > 0 && *request.guidance < 1 &&
      !job.planned.guidance.branches())
    note(fmt::format("`guidance` {}", *request.guidance), "below 1 there is none, as with 1");
  if (request.true_guidance > 1 && embeds && !job.planned.guidance.branches())
    note(fmt::format("`true_guidance` {}", request.true_guidance),
         has_embeddings ? "`embeddings` holds nothing negative, which it needs, as in diffusers"
                        : "it needs `negative_prompt`, which may be empty (\"\"), as in diffusers");
  for (const auto& [option, given_one] :
       {std::pair("`cfg_normalization`", request.cfg_normalization != 0),
        {"`cfg_truncation`", request.cfg_truncation != 1},
        {"`guidance_start`", request.guidance_start != 0}})
    if (given_one && !job.planned.guidance.branches()) note(option, "this run has no guidance");
  if (request.true_guidance != 1 && !embeds)
    note("`true_guidance`", "the guidance of this model is `guidance`");
  if (request.text_tokens > 0 && (has_embeddings || spec.text_inputs.empty()))
    note("`text_tokens`", has_embeddings ? "`embeddings` holds what text encoders read"
                                         : "this model reads no text");
  if (request.clean_caption && (has_embeddings || !spec.cleans_captions))
    note("`clean_caption`", has_embeddings ? "`embeddings` holds what text encoders read"
                                           : "the pipeline of this model cleans no prompts");
  if (request.vae_tiling == VaeTiling::on && !request.decode)
    note("`vae_tiling`", "nothing is decoded");
  if (request.vae_chunk > 0 && !request.decode) note("`vae_chunk`", "nothing is decoded");
}

Embeddings read_embeddings(const GenerateRequest& request) {
  const load::SafetensorsFile file(request.embeddings);
  Embeddings embeddings;
  for (const auto& [name, entry] : file.entries()) embeddings[name] = given_numbers(file, name);
  return embeddings;
}

parallel::Guidance text_guidance(const models::PipelineSpec& spec, const Branches& branches) {
  parallel::Guidance guidance{branches.scale, spec.guided_channels, spec.guided_channels};
  guidance.negated = spec.negated;
  return guidance;
}

void plan_text(const runtime::ModelState& state, const GenerateRequest& request, int steps,
               Job& job) {
  const models::PipelineSpec& spec = *state.spec;
  const Branches branches = branches_of(spec, request, job.planned.guidance_asked);
  require(state.folder.has("scheduler") || state.folder.absent.contains("scheduler"),
          ErrorCode::model, "'{}' has no scheduler; expected scheduler/scheduler_config.json",
          state.name);
  state.folder.component("scheduler");
  choose_sampler(state, request, steps, job);
  note_passes(state, request, steps, job);
  if (request.embeddings.empty())
    job.asked.texts = cut_texts(state, request, branches.two, job.planned.notes);
  const Embeddings embeddings =
      request.embeddings.empty()
          ? predict_texts(state, job.asked.texts, branches.two, job.planned.notes)
          : read_embeddings(request);
  const int64_t prompts = prompt_count(spec, embeddings, branches.two);
  image_count(prompts, request);
  for (int64_t p = 0; p < prompts; ++p)
    for (int i = 0; i < request.count; ++i)
      job.planned.labels.push_back(static_cast<size_t>(p) < request.prompts.size()
                                       ? request.prompts[static_cast<size_t>(p)]
                                       : "prompt " + std::to_string(p));
  job.asked.conditioning = conditioning_of(state, request, embeddings, job);
  job.planned.prefixes = spec.prefixes(job.asked.conditioning);
  job.planned.guidance = text_guidance(spec, branches);
}

// Replaces the requested size by the reference pipeline's size bin.
void plan_bin(const runtime::ModelState& state, int64_t& height, int64_t& width, Job& job) {
  require(height >= 16 && width >= 16 && height <= 16384 && width <= 16384, ErrorCode::usage,
          "`width` {} `height` {}: expected 16 to 16384 pixels with `binning`", width, height);
  require(state.spec->binned != nullptr, ErrorCode::usage,
          "`binning` on: '{}' has no table of trained sizes; leave it out", state.name);
  const auto bin = state.spec->binned(height, width);
  if (bin.height == height && bin.width == width) return;
  if (bin.resized_back) {
    job.planned.crop_height = height;
    job.planned.crop_width = width;
    job.planned.crop_covers = true;
  }
  job.planned.notes.push_back(fmt::format(
      "computes {} x {} pixels (width x height), a trained size{}", bin.width, bin.height,
      bin.resized_back ? fmt::format(", and resizes and crops to {} x {}", width, height)
                       : fmt::format(", in place of {} x {}", width, height)));
  height = bin.height;
  width = bin.width;
}

// Rounds the requested size up to multiples; the result is cropped to its middle.
void plan_fit(const runtime::ModelState& state, int64_t& height, int64_t& width, Job& job) {
  constexpr int64_t kMost = 16384;
  const std::array<int64_t, 3> patch = state.spec->layout(0, 0).patch;
  const auto above = [&](int64_t pixels, int64_t cells) {
    const int64_t unit = state.vae_factor() * cells;
    return (pixels + unit - 1) / unit * unit;
  };
  require(height > 0 && width > 0 && height <= kMost && width <= kMost, ErrorCode::usage,
          "`width` {} `height` {}: expected 1 to {} pixels with `fit`", width, height, kMost);
  const int64_t tall = above(height, patch[1]), wide = above(width, patch[2]);
  if (tall == height && wide == width) return;
  require(!state.video() || (height % 2 == 0 && width % 2 == 0), ErrorCode::usage,
          "`width` {} `height` {}: a video has even sides", width, height);
  job.planned.crop_height = height;
  job.planned.crop_width = width;
  job.planned.notes.push_back(fmt::format(
      "computes {} x {} pixels (width x height), and crops to {} x {}", wide, tall, width, height));
  height = tall;
  width = wide;
}

// The size of the start image, or of the first reference image.
SourceSize size_of_images(const runtime::ModelState& state, const GenerateRequest& request,
                          const Job& job) {
  const SourceSize source = size_of_source(state, request);
  if (source.height > 0 || job.asked.references.empty() || starts_from_image(*state.spec, request))
    return source;
  const Tensor& first = job.asked.references.front().pixels;
  return {first.size(3), first.size(2)};
}

// Models with patches across frames get extra latent frames before the requested frames.
void plan_size(const runtime::ModelState& state, const GenerateRequest& request, Job& job) {
  const models::PipelineSpec& spec = *state.spec;
  const std::array<int64_t, 3> patch = spec.layout(0, 0).patch;
  const int64_t factor = state.vae_factor(), depth = patch[0];
  int64_t frames = latent_frames(spec, request.frames > 0 ? request.frames : spec.trained_frames);
  if (request.frames > 0 && decoded_frames(spec, frames) != request.frames)
    job.planned.notes.push_back(fmt::format(
        "`frames` {} gives {}, as in diffusers: the VAE decodes latent frames in pairs; {}n + 1 "
        "frames, as {} or {}, come as asked",
        request.frames, decoded_frames(spec, frames), 2 * spec.frames_per_latent,
        request.frames - spec.frames_per_latent, request.frames + spec.frames_per_latent));
  job.planned.added_frames = (depth - frames % depth) % depth;
  frames += job.planned.added_frames;
  job.planned.form = spec.form;
  int64_t height = request.height, width = request.width;
  const SourceSize source_size = size_of_images(state, request, job);
  if (height == 0) height = source_size.height;
  if (width == 0) width = source_size.width;
  require(!request.binning || !request.fit, ErrorCode::usage,
          "`fit` and `binning` both choose a size: give one of them");
  if (request.binning || request.fit) {
    const nn::TokenLayout trained = spec.layout(0, 0);
    if (height == 0) height = trained.size[1] * factor;
    if (width == 0) width = trained.size[2] * factor;
    request.fit ? plan_fit(state, height, width, job) : plan_bin(state, height, width, job);
  }
  job.planned.layout = spec.layout(latent_pixels(height, factor, patch[1], "height"),
                                   latent_pixels(width, factor, patch[2], "width"), frames);
}

// Sets the sizes of a job and returns the number of steps; encodes nothing.
int begin_job(const runtime::ModelState& state, const GenerateRequest& request, Job& job) {
  job.counted.meters = runtime::RunMeters(state.workers.ranks.size());
  job.planned.traced = !request.trace.empty();
  job.planned.step_cache = request.cache;
  job.planned.int8_scores = runtime::rules_of(state.options).int8_scores();
  const RunSettings run = run_settings(state, request, job.planned.notes);
  job.planned.guidance_asked = run.guidance;
  require(job.planned.guidance_asked >= 0 && job.planned.guidance_asked <= 1000, ErrorCode::usage,
          "`guidance` {}: expected a number from 0 to 1000", job.planned.guidance_asked);
  read_references(state, request, job);
  plan_size(state, request, job);
  if (request.decode && state.has_vae()) {
    job.planned.decoded_lines = job.planned.layout.size[1];
    job.planned.vae_chunk =
        checked_chunk(request.vae_chunk, job.planned.decoded_lines * state.vae_factor());
  }
  check_tokens(job.planned.layout, 1);
  return run.steps;
}

// Number of texts for the encoders, negative texts included; without a prompt the count assumes a
// single prompt.
int text_count(const runtime::ModelState& state, const GenerateRequest& request, const Job& job) {
  if (!state.spec->takes_text() || !request.embeddings.empty()) return 0;
  const auto prompts = std::max<size_t>(request.prompts.size(), 1);
  return static_cast<int>(prompts) + (job.planned.guidance.branches() ? 1 : 0);
}

// Sets the shapes of conditioning: from given embeddings, or from texts of the encoders' or
// published length.
void sketch_conditioning(const runtime::ModelState& state, const GenerateRequest& request,
                         Job& job) {
  require(request.embeddings.empty() || state.spec->takes_text(), ErrorCode::usage,
          "`embeddings` {}: this model takes classes, not text; leave it out", request.embeddings);
  const bool two = job.planned.guidance.branches();
  job.asked.texts = usual_texts(state, request, text_count(state, request, job));
  const bool complete = std::all_of(job.asked.texts.begin(), job.asked.texts.end(),
                                    [](const Text& t) { return t.there || t.part.optional; });
  std::vector<std::string> notes;
  Embeddings embeddings;
  if (!request.embeddings.empty())
    embeddings = read_embeddings(request);
  else if (!job.asked.texts.empty() && complete)
    embeddings = predict_texts(state, job.asked.texts, two, notes);
  else
    return void(job.asked.conditioning = state.spec->example(int64_t{job.samples()} * (two ? 2 : 1),
                                                             request.text_tokens));
  job.planned.labels.resize(
      static_cast<size_t>(image_count(prompt_count(*state.spec, embeddings, two), request)));
  job.asked.conditioning = conditioning_of(state, request, embeddings, job);
}

std::vector<RunInput> inputs_of(const GenerateRequest& request) {
  std::vector<RunInput> inputs{{"`initial_latents`", request.initial_latents},
                               {"`embeddings`", request.embeddings}};
  for (const InputImage& image : request.images) inputs.push_back({"`image`", image.file});
  for (const Lora& lora : request.loras) inputs.push_back({"`loras`", lora.file});
  if (request.mask) inputs.push_back({"`mask`", request.mask->file});
  return inputs;
}

// A model without a pipeline makes no images.
[[noreturn]] void refuse_other_model(const runtime::ModelState& state) {
  if (state.folder.absent.contains("transformer")) state.folder.component("transformer");
  require(!state.layer, ErrorCode::usage,
          "'{}' is one MoE layer; a forward with `component` moe_layer runs it", state.name);
  require(!state.folder.has("model"), ErrorCode::usage,
          "'{}' is a language model, which makes no images; it completes texts", state.name);
  fail(ErrorCode::model,
       "'{}' ({}) holds no transformer; only a forward of its parts can run. Supported are "
       "pipelines with one of {}",
       state.name, base::printable(state.folder.class_name),
       models::known_types(models::pipelines()));
}

}  // namespace

Job plan_job(const runtime::ModelState& state, const GenerateRequest& request) {
  if (!state.spec) refuse_other_model(state);
  const Plan& plan = state.options.plan;
  require(
      !request.compare_steps ||
          (plan.ranks() == 1 && plan.patch_count() == 1 && !parallel::shares_experts(plan) &&
           !state.geometry().experts.empty()),
      ErrorCode::usage,
      "`compare_steps` compares the experts of a synchronous run on one rank: leave out `plan`, "
      "and choose a model with experts");
  Job job;
  check_subject(state, request);
  const int steps = begin_job(state, request, job);
  if (request.decode && state.folder.absent.contains("vae"))
    state.folder.component("vae", ", or save latents alone: `latents_only` `save_latents` FILE");
  require(!request.decode || state.has_vae(), ErrorCode::model,
          "'{}' has no VAE, so it can only save latents: add `latents_only` `save_latents` FILE",
          state.name);
  check_files({state.folder.path,
               inputs_of(request),
               {{"`save_latents`", request.save_latents, FileKind::latents},
                {"`trace`", request.trace, FileKind::trace}},
               request.overwrite,
               state.files});
  for (const std::string& message :
       {state.check_transformer(), request.decode ? state.check_vae() : std::string()})
    if (!message.empty()) job.planned.notes.push_back(message);
  if (state.spec->text_inputs.empty())
    plan_classes(state, request, steps, job);
  else
    plan_text(state, request, steps, job);
  require(request.seeds.empty() || std::ssize(request.seeds) == job.samples(), ErrorCode::usage,
          "{} seeds for {} images: give one for each, or one for all", request.seeds.size(),
          job.samples());
  plan_source(state, request, job);
  set_fill(request, job);
  require(job.asked.references.empty() || state.has_vae(), ErrorCode::model,
          "'{}' has no VAE, which `image` needs to encode the image", state.name);
  plan_references(state, job);
  job.asked.adapters = runtime::load_adapters(state, request.loras, request.merge_lora);
  if (job.asked.adapters)
    std::ranges::copy(job.asked.adapters->notes, std::back_inserter(job.planned.notes));
  plan_rescale(*state.spec, request, job);
  if (request.cache)
    parallel::check_step_cache(*request.cache, state.geometry(), job.planned.sampler->steps());
  note_without_effect(state, request, job);
  if (!request.initial_latents.empty() || !request.initial_tensors.empty())
    read_initial(request, job);
  return job;
}

Job sketch_job(const runtime::ModelState& state, const GenerateRequest& request) {
  const models::PipelineSpec& spec = *state.spec;
  Job job;
  const int steps = begin_job(state, request, job);
  require(steps >= 1, ErrorCode::usage, "`steps` {}: expected 1 or more", steps);
  if (request.text_tokens > 0 && !spec.takes_text())
    job.planned.notes.push_back("`text_tokens` has no effect: this model reads no text");
  job.planned.labels.resize(static_cast<size_t>(
      image_count(static_cast<int64_t>(request.classes.size() + request.prompts.size()), request)));
  if (!spec.takes_text()) {
    choose_class_sampler(state, request, steps, job);
  } else {
    job.planned.guidance =
        text_guidance(spec, branches_of(spec, request, job.planned.guidance_asked));
    job.planned.sampler = sample::rectified_flow(steps);
    if (state.folder.has("scheduler")) choose_sampler(state, request, steps, job);
  }
  sketch_conditioning(state, request, job);
  plan_references(state, job);
  check_tokens(job.planned.layout,
               int64_t{job.samples()} * (job.planned.guidance.branches() ? 2 : 1));
  job.planned.prefixes = spec.prefixes(job.asked.conditioning);
  return job;
}

}  // namespace tessera::diffusion

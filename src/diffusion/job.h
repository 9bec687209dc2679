#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "diffusion/overlay.h"
#include "diffusion/source_image.h"
#include "nn/latent_form.h"
#include "parallel/denoise.h"
#include "runtime/model_state.h"
#include "sample/sampler.h"
#include "tessera/report.h"

namespace tessera::diffusion {

/// Counts of operations, by name.
using Work = std::map<std::string, tensor::Meter::Entry>;
double flops_of(const Work& work);

/// Cost of a part of a run, found by running the part on meta: bytes and operations.
struct MemoryNeed {
  int64_t weights = 0, activations = 0, peak = 0;
  int64_t stored = 0;  ///< bytes of all weights, also those never in memory together
  Work work;
  int64_t kept = 0;              ///< bytes of all packed weights, with RunOptions::keep_parts
  std::vector<int64_t> ranks{};  ///< bytes of each rank of a plan that encodes texts
};

/// The prompts of a request, as input of one text encoder of the folder.
struct Text {
  models::TextPart part;
  models::TextBatch batch;
  bool there = true;  ///< false if the folder lacks an optional encoder; then there is no batch
  MemoryNeed need{};  ///< cost of encoding
};

/// Tensors and files of a request, until the run has used them.
struct RequestInputs {
  std::vector<Text> texts{};                            ///< input of encode_text()
  nn::Conditioning conditioning{};                      ///< all sequences: every image, then again
                                                        ///< without conditions
  std::map<std::string, tensor::Tensor> given{};        ///< tensors of --initial-latents
  std::string given_by = "the request";                 ///< source of `given`, for errors
  std::optional<SourceImage> source{};                  ///< the image at the start of the run
  std::vector<SourceImage> references{};                ///< images beside the noise, in order
  std::shared_ptr<const Overlay> overlay{};             ///< null: nothing is laid over what is made
  std::shared_ptr<const runtime::Adapters> adapters{};  ///< null: none
};

/// Sizes and schedule of a run: decisions that need no weights and no memory. A dry run takes them
/// whole.
struct PlannedRun {
  nn::TokenLayout layout{};
  nn::LatentForm form = nn::LatentForm::image;
  std::vector<std::string> labels{};  ///< the class or prompt of each image or video
  /// If the job is part of a request: the number of its first sample, and all samples of the
  /// request; 0: the job is the whole request.
  int first_sample = 0, all_samples = 0;
  std::vector<int64_t> prefixes{};  ///< text tokens of each sequence; empty: no sequence has text
  int64_t added_frames = 0;         ///< latent frames before the requested frames
  int64_t decoded_lines = 0;        ///< lines of a latent to decode; 0: nothing is decoded
  float guidance_asked = 1;
  std::shared_ptr<const sample::Sampler> sampler{};
  std::string sampler_name{};  ///< "ddpm", "DDIMScheduler", ...
  parallel::Guidance guidance{};
  int64_t crop_height = 0, crop_width = 0;  ///< pixels of what is made; 0: as decoded
  bool crop_covers = false;                 ///< an image is resized until it covers them
  int64_t vae_chunk = 0;                    ///< lines per call of its filters; 0: all
  std::optional<StepCache> step_cache{};
  bool int8_scores = false;  ///< attention with scores in int8
  bool traced = false;       ///< keep latents and predictions of all steps
  std::shared_ptr<const nn::RecordedRouting> routing{};  ///< as parallel::Workload::routing
  std::vector<std::string> notes{};                      ///< notes for the user
};

struct Job;

/// The form of a run that fits into memory.
struct AdmittedRun {
  std::optional<models::Tiling> tiles{};  ///< tiles for decoding; none: whole
  /// Tiles for a preview of a part, in the memory beside the run. Throws
  /// Error(memory).
  std::function<std::optional<models::Tiling>(const Job& part)> preview_tiles{};
  int64_t resident_blocks = -1;    ///< blocks of the transformer that stay in memory; -1: all
  bool keeps_transformer = false;  ///< keep the transformer in memory during decoding and later
  bool keeps_text = false;         ///< keep packed weights of the text encoders for later requests
  int64_t keeps_vae = 0;           ///< bytes of packed VAE weights to keep
};

/// Held while a run needs it.
struct LoadedRun {
  std::shared_ptr<runtime::MemoryReservation> reservation{};  ///< until the last part has ended
  /// The transformers of this process's ranks, by rank.
  std::vector<std::shared_ptr<const nn::Denoiser>> networks{};
};

/// The measured work of a run.
struct CountedRun {
  runtime::RunMeters meters{};
  /// Work of the text encoders: `per_rank` for ranks of this process, and traffic of threads.
  Report encoded{};
  comm::Ledger::Entries sent_before{};  ///< traffic of earlier requests, if the rank is a process
};

/// A request on its way, in parts by lifetime.
struct Job {
  RequestInputs asked{};
  PlannedRun planned{};
  AdmittedRun admitted{};
  LoadedRun loaded{};
  CountedRun counted{};

  int samples() const { return static_cast<int>(planned.labels.size()); }
  /// Shapes of latents in files and of drawn noise.
  tensor::Shape latent_shape() const {
    return nn::latent_shape(planned.layout, planned.form, samples());
  }
  /// The same shapes for all samples of the whole request.
  tensor::Shape given_shape() const {
    return nn::latent_shape(planned.layout, planned.form, drawn_samples());
  }
  tensor::Shape noise_shape() const {
    return nn::latent_shape(planned.layout, noise_form(), drawn_samples());
  }
  /// Text tokens of the longest sequence.
  int64_t prefix() const {
    const std::vector<int64_t>& prefixes = planned.prefixes;
    return prefixes.empty() ? 0 : *std::max_element(prefixes.begin(), prefixes.end());
  }
  int drawn_samples() const { return planned.all_samples > 0 ? planned.all_samples : samples(); }
  nn::LatentForm noise_form() const {
    return planned.form == nn::LatentForm::packed ? nn::LatentForm::image : planned.form;
  }
  parallel::Workload workload() const {
    const parallel::Guidance& guidance = planned.guidance;
    const sample::Sampler& sampler = *planned.sampler;
    parallel::Workload workload{
        samples(), planned.layout.grid(), guidance.branches() ? 2 : 1, sampler.steps(),
        prefix(),  planned.decoded_lines, guidance.measures_samples(), sampler.whole_samples()};
    workload.extra = planned.layout.extra;
    workload.prefixes = planned.prefixes;
    workload.first_sample = planned.first_sample;
    workload.all_samples = planned.all_samples;
    workload.step_cache = planned.step_cache;
    workload.int8_scores = planned.int8_scores;
    workload.routing = planned.routing;
    return workload;
  }
};

}  // namespace tessera::diffusion

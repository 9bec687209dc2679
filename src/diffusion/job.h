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

/// Ops and what they do, by name.
using Work = std::map<std::string, tensor::Meter::Entry>;
double flops_of(const Work& work);

/// What a part of a run takes, found by running it on meta: bytes, and the ops that it runs.
struct Need {
  int64_t weights = 0, activations = 0, peak = 0;
  int64_t stored = 0;  ///< bytes of all its weights, in memory together or not
  Work work;
  int64_t kept = 0;              ///< bytes of all its weights, packed, with RunOptions::keep_parts
  std::vector<int64_t> ranks{};  ///< bytes of each of a plan's ranks that encode a text
};

/// The prompts of a request as a text encoder of the folder gets them.
struct Text {
  models::TextPart part;
  models::TextBatch batch;
  bool there = true;  ///< the folder may lack an optional part, then there is no batch
  Need need{};        ///< of encoding them
};

/// Everything about a request that is decided before a weight is read.
struct Job {
  std::shared_ptr<runtime::AtWork>
      at_work{};  ///< what it takes counts until its last part has ended
  nn::TokenLayout layout;
  nn::LatentForm form = nn::LatentForm::image;
  std::vector<std::string> labels;  ///< one an image or video: its class or prompt
  /// Of a part of a request: the number of its first sample, and how many there are; 0: it is all.
  int first_sample = 0, all_samples = 0;
  std::vector<Text> texts;        ///< that encode_text() makes conditioning of
  nn::Conditioning conditioning;  ///< of all sequences: every image, then again without conditions
  std::vector<int64_t> prefixes;  ///< text tokens of each sequence; empty: none has any
  int64_t added_frames = 0;       ///< latent frames before those that were asked for
  int64_t decoded_lines = 0;      ///< of a latent; 0: none is decoded
  float guidance_asked = 1;
  std::shared_ptr<const sample::Sampler> sampler;
  std::string sampler_name;  ///< "ddpm", "DDIMScheduler", ...
  parallel::Guidance guidance;
  std::map<std::string, tensor::Tensor> given;  ///< of --initial-latents
  std::string given_by = "the request";         ///< that file
  std::optional<SourceImage> source{};          ///< the image that the run starts from
  std::vector<SourceImage> references{};        ///< images beside the noise, in order
  int64_t crop_height = 0, crop_width = 0;      ///< pixels of what is made; 0: as decoded
  bool crop_covers = false;                     ///< an image is resized until it covers them
  std::shared_ptr<const Overlay> overlay{};     ///< null: nothing is laid over what is made
  std::optional<models::Tiling> tiles;          ///< in which latents are decoded; none: whole
  /// Those in which a preview of a part is decoded, beside what the run holds. Throws
  /// Error(memory).
  std::function<std::optional<models::Tiling>(const Job& part)> preview_tiles{};
  int64_t vae_chunk = 0;           ///< lines that its filters work on; 0: all
  std::vector<std::string> notes;  ///< what one should know about it
  int64_t resident_blocks = -1;    ///< of the transformer, the others streamed; -1: all
  bool keeps_transformer = false;  ///< in memory, while latents are decoded and later
  bool keeps_text = false;         ///< packed weights of the text encoders stay for later requests
  int64_t keeps_vae = 0;           ///< bytes of those of the VAE that stay, too
  std::optional<StepCache> step_cache{};
  bool traced = false;  ///< latents and predictions of all steps are kept
  runtime::RunMeters meters;
  /// While texts were encoded: `per_rank`, those of this process, and what threads sent.
  Report encoded{};
  comm::Ledger::Entries sent_before{};  ///< by a rank that is a process, for earlier requests
  std::shared_ptr<const runtime::Adapters> adapters{};  ///< null: none
  /// The transformer by rank, of those of this process, while it is needed.
  std::vector<std::shared_ptr<const nn::Denoiser>> networks{};

  int samples() const { return static_cast<int>(labels.size()); }
  /// As files hold latents, and as noise is drawn.
  tensor::Shape latent_shape() const { return nn::latent_shape(layout, form, samples()); }
  /// The same of all samples of the request that this is a part of.
  tensor::Shape given_shape() const { return nn::latent_shape(layout, form, drawn_samples()); }
  tensor::Shape noise_shape() const {
    return nn::latent_shape(layout, noise_form(), drawn_samples());
  }
  /// Text tokens of the longest sequence.
  int64_t prefix() const {
    return prefixes.empty() ? 0 : *std::max_element(prefixes.begin(), prefixes.end());
  }
  int drawn_samples() const { return all_samples > 0 ? all_samples : samples(); }
  nn::LatentForm noise_form() const {
    return form == nn::LatentForm::packed ? nn::LatentForm::image : form;
  }
  parallel::Workload workload() const {
    parallel::Workload all{
        samples(), layout.grid(), guidance.branches() ? 2 : 1, sampler->steps(),
        prefix(),  decoded_lines, guidance.measures_samples(), sampler->whole_samples()};
    all.extra = layout.extra;
    all.prefixes = prefixes;
    all.first_sample = first_sample;
    all.all_samples = all_samples;
    all.step_cache = step_cache;
    return all;
  }
};

}  // namespace tessera::diffusion

#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nn/latent_form.h"
#include "parallel/denoise.h"
#include "pipeline/model_state.h"
#include "sample/sampler.h"

namespace tessera::pipeline {

/// Everything about a request that is decided before a weight is read.
struct Job {
  nn::TokenLayout layout;
  nn::LatentForm form = nn::LatentForm::picture;
  std::vector<std::string> labels;  ///< one a picture or video: its class or prompt
  nn::Conditioning conditioning;    ///< of all rows: every picture, then again without conditions
  int64_t prefix = 0;               ///< text tokens of a row
  int64_t added_frames = 0;         ///< latent frames before those that were asked for
  float guidance_asked = 1;
  std::unique_ptr<sample::Sampler> sampler;
  std::string sampler_name;  ///< "ddpm", "DDIMScheduler", ...
  parallel::Guidance guidance;
  std::map<std::string, tensor::Tensor> given;  ///< of --initial-latents
  int64_t crop_height = 0, crop_width = 0;      ///< pixels a picture is resized to; 0: as decoded
  std::optional<models::Tiling> tiles;          ///< in which latents are decoded; none: whole
  std::vector<std::string> notes;               ///< what one should know about it

  int pictures() const { return static_cast<int>(labels.size()); }
  /// As files hold latents, and as noise is drawn.
  tensor::Shape latent_shape() const { return nn::latent_shape(layout, form, pictures()); }
  tensor::Shape noise_shape() const { return nn::latent_shape(layout, noise_form(), pictures()); }
  nn::LatentForm noise_form() const {
    return form == nn::LatentForm::packed ? nn::LatentForm::picture : form;
  }
  parallel::Workload workload() const {
    return {pictures(), layout.tokens(), guidance.branches() ? 2 : 1, sampler->steps()};
  }
};

/// Collects latents and predictions in the layout of the reference pipelines.
class Trace {
 public:
  Trace(const Job& job, bool wanted) : layout_(job.layout), form_(job.form), wanted_(wanted) {}
  bool wanted() const { return wanted_; }
  void tokens(const std::string& name, const tensor::Tensor& x);
  void plain(const std::string& name, const tensor::Tensor& x) { tensors_[name] = x; }
  /// Writes what was collected, if it was wanted.
  void write(const std::string& path) const;

 private:
  nn::TokenLayout layout_;
  nn::LatentForm form_;
  bool wanted_;
  std::map<std::string, tensor::Tensor> tensors_;
};

/// What a request means for an open model: sizes, schedule, conditioning of all rows. Throws
/// Error(usage) for what does not fit, Error(model) for parts that are missing. Text encoders are
/// run and released.
Job plan_job(const ModelState& state, const GenerateRequest& request,
             const RunControl& control = {});
/// Throws Error(plan) when the plan of an open model cannot run a job; reads no weights.
void check_plan(const ModelState& state, const Job& job);
/// Loads the transformers of all ranks of this process.
void load_ranks(ModelState& state);
/// The most that was held at once, by memory class, and "total".
std::map<std::string, int64_t> peaks_of(const tensor::MemoryTracker& memory);
/// Noise to latents in token layout f32, on the ranks of the model's plan.
tensor::Tensor denoise(ModelState& state, const GenerateRequest& request, const RunControl& control,
                       const Job& job, Trace& trace, Report& report);

/// Latents in token layout to pictures, one at a time, or to the frames of videos. With `keep` also
/// the numbers in [0, 1]: [pictures, 3, H, W], or [videos, frames, 3, H, W]; else undefined.
tensor::Tensor decode(const ModelState& state, const RunControl& control, const Job& job,
                      const tensor::Tensor& tokens, std::vector<Picture>& pictures, bool keep);

}  // namespace tessera::pipeline

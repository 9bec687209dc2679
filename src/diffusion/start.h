#pragma once

#include "diffusion/job.h"
#include "diffusion/noise.h"

namespace tessera::diffusion {

/// Draws latents and noise of a request, in full and in order on every rank, then cuts them:
/// plain noise, or noise added to an image's latent.
class Start {
 public:
  Start(const GenerateRequest& request, const Job& job, const parallel::Setup& setup);
  tensor::Tensor latents() const { return latents_; }
  tensor::Tensor noise(int step);
  /// The part of the image that stays; null: the whole image changes.
  const parallel::KeptLatent* kept_latent() const {
    return kept_latent_.mask.defined() ? &kept_latent_ : nullptr;
  }

 private:
  tensor::Tensor draw(const tensor::Shape& shape);
  tensor::Tensor tokens(const tensor::Tensor& whole, nn::LatentForm form) const;
  tensor::Tensor repeated(const tensor::Tensor& x) const;
  void begin_with_noise();
  void begin_with(const SourceImage& source, bool each_alone);

  const Job& job_;
  const parallel::Setup& setup_;
  Noise noise_;
  tensor::Tensor latents_;
  parallel::KeptLatent kept_latent_;
};

/// Returns the latent of a job's masked image (SourceImage::masked), drawn with the numbers of the
/// request: [1, C, h, w], or a latent for each seed. All processes of a plan draw the same.
tensor::Tensor drawn_fill(const GenerateRequest& request, const Job& job);

}  // namespace tessera::diffusion

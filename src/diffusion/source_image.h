#pragma once

#include <optional>
#include <string>

#include "models/pipeline_spec.h"
#include "models/vae/vae.h"
#include "tensor/tensor.h"
#include "tessera/request.h"

namespace tessera::runtime {
struct ModelState;
}
namespace tessera::diffusion {
struct Job;

/// An image at the start of a run, with the mask of the change; or a reference image beside the
/// noise.
struct SourceImage {
  tensor::Tensor pixels;  ///< f32 [1, 3, height, width] in [-1, 1]
  tensor::Tensor mask;    ///< f32 [1, 1, h, w] of the latent, 1: is made anew; undefined: all is
  tensor::Tensor mean, logvar;          ///< the encoder sets the latent's scaled moments
  std::optional<models::Tiling> tiles;  ///< the image is encoded in these tiles; none: whole
  bool takes_mean = false;              ///< its latent is the mean, not drawn by logvar
  bool referenced = false;              ///< it stands beside the noise, too
  /// For PipelineSpec::fills_mask, in place of `mask`: f32 [1, factor * factor, h, w], the mask's
  /// pixels under each of the latent; the image that is 0 under them, and its latent.
  tensor::Tensor mask_pixels, masked, masked_mean, masked_logvar;

  int64_t bytes() const {
    int64_t sum = 0;
    for (const tensor::Tensor* x :
         {&pixels, &mask, &mean, &logvar, &mask_pixels, &masked, &masked_mean, &masked_logvar})
      if (x->defined()) sum += x->bytes();
    return sum;
  }
};

/// Whether a request starts from an image. Models with reference images start from an image only
/// with a strength, a mask or margins. Throws Error(usage) for these options without an image.
bool starts_from_image(const models::PipelineSpec& spec, const GenerateRequest& request);
/// The number of steps that such a run skips, as in diffusers: n - min(n * strength, n), rounded
/// down. Throws Error(usage) for a strength outside 0 to 1, and for a strength without any
/// remaining step.
int left_out_steps(const models::PipelineSpec& spec, const GenerateRequest& request, int steps);
/// The size in pixels that a run takes from its image, with margins or
/// PipelineSpec::sized_by_image, if the request has no size. Rounded down to the patch of the
/// model; {0, 0}: as trained.
struct SourceSize {
  int64_t width = 0, height = 0;
};
SourceSize size_of_source(const runtime::ModelState& state, const GenerateRequest& request);

/// Reads the image and the mask of a request, resizes both to the size of the job, and notes the
/// changes. Throws Error(usage) for invalid files, and for models that cannot start from an image.
void plan_source(const runtime::ModelState& state, const GenerateRequest& request, Job& job);
}  // namespace tessera::diffusion

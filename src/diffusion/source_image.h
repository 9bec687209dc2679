#pragma once

#include <optional>
#include <string>

#include "models/vae/vae.h"
#include "tensor/tensor.h"
#include "tessera/request.h"

namespace tessera::runtime {
struct ModelState;
}
namespace tessera::diffusion {
struct Job;

/// The image that a run starts from, and the mask of what changes.
struct SourceImage {
  tensor::Tensor pixels;  ///< f32 [1, 3, height, width] in [-1, 1]
  tensor::Tensor mask;    ///< f32 [1, 1, h, w] of the latent, 1: is made anew; undefined: all is
  tensor::Tensor mean, logvar;          ///< of its latent, as the transformer's are; once encoded
  std::optional<models::Tiling> tiles;  ///< in which it is encoded; none: whole

  int64_t bytes() const {
    int64_t sum = 0;
    for (const tensor::Tensor* x : {&pixels, &mask, &mean, &logvar})
      if (x->defined()) sum += x->bytes();
    return sum;
  }
};

/// Whether a request starts from an image. Throws Error(usage) for a mask, margins or a strength
/// without one.
bool starts_from_image(const GenerateRequest& request);
/// The steps of so many that such a run leaves out, as diffusers counts them: n - min(n * strength,
/// n), rounded down. Throws Error(usage) for a strength outside 0 to 1, or one that leaves none.
int left_out_steps(const GenerateRequest& request, int steps);
/// The size of a run whose request has margins and no size, in pixels: the image and these, rounded
/// down to the patch of the model; {0, 0}: as trained.
struct SourceSize {
  int64_t width = 0, height = 0;
};
SourceSize size_with_margins(const runtime::ModelState& state, const GenerateRequest& request);

/// Reads the image and the mask of a request and brings them to the size of the job, and says in
/// its notes what becomes of them. Throws Error(usage) for files that are none, and for models
/// that do not start from an image.
void plan_source(const runtime::ModelState& state, const GenerateRequest& request, Job& job);
/// Encodes it: every process of a plan does so for itself.
void encode_source(const runtime::ModelState& state, Job& job);

}  // namespace tessera::diffusion

#include "diffusion/encode_images.h"

#include "base/fail.h"
#include "diffusion/reference_images.h"
#include "diffusion/start.h"
#include "nn/local_spatial.h"
#include "ops/elementwise.h"
#include "ops/finite.h"

namespace tessera::diffusion {

using tensor::DType;
using tensor::Tensor;

namespace {

// Moments behind each other, as tiles of them are joined.
Tensor joined(const models::VaeMoments& m) {
  const tensor::Shape flat{m.mean.size(1), m.mean.size(2) * m.mean.size(3)};
  return ops::concat_rows({m.mean.reshape(flat), m.logvar.reshape(flat)})
      .reshape({1, 2 * m.mean.size(1), m.mean.size(2), m.mean.size(3)});
}

void encode_image(const runtime::ModelState& state, const models::VaeEncoder& encoder,
                  const Job& job, SourceImage& image) {
  nn::LocalSpatial spatial(job.planned.vae_chunk);
  const auto whole = [&](const Tensor& x) {
    return runtime::on_host(joined(encoder.encode(x.to(state.device()), spatial)));
  };
  const Tensor moments =
      image.tiles ? models::encode_tiles(image.pixels, state.vae_factor(), *image.tiles, whole)
                  : whole(image.pixels);
  const int64_t channels = moments.size(1) / 2;
  const models::VaeMoments scaled =
      encoder.scale({moments.slice(1, 0, channels).contiguous(),
                     moments.slice(1, channels, 2 * channels).contiguous()});
  if (!moments.is_meta()) ops::require_finite(scaled.mean, "the VAE's encoder");
  require(channels == job.planned.layout.channels, ErrorCode::model,
          "'{}': the VAE makes {} latent channels, the transformer takes {}", state.name, channels,
          job.planned.layout.channels);
  image.mean = scaled.mean;
  if (!image.takes_mean) image.logvar = scaled.logvar;
}

}  // namespace

Tensor take_fill(const Tensor& packed, const nn::TokenLayout& layout, const std::string& file,
                 std::map<std::string, Tensor>& conditioning) {
  const int64_t own = layout.token_channels(), channels = packed.size(2);
  require(
      channels > own, ErrorCode::usage,
      "'{}': tokens of {} channels; expected the noise's {}, then those of the masked image and "
      "the mask",
      file, channels, own);
  conditioning["fill_tokens"] = packed.slice(2, own, channels).contiguous();
  return packed.slice(2, 0, own).contiguous();
}

void set_fill(const GenerateRequest& request, Job& job) {
  if (!job.asked.source || !job.asked.source->mask_pixels.defined()) return;
  const SourceImage& source = *job.asked.source;
  nn::TokenLayout layout = job.planned.layout;
  layout.extra = 0;
  const int64_t sequences = job.asked.conditioning.tensors.begin()->second.size(0);
  const int64_t samples = job.samples();
  Tensor image = Tensor::zeros({samples * layout.tokens(), layout.token_channels()}, DType::f32);
  if (source.masked_mean.defined()) {
    const Tensor latent = drawn_fill(request, job);
    image = nn::tokens_of_latent(
        latent.size(0) == samples
            ? latent
            : ops::concat_rows(std::vector(static_cast<size_t>(samples), latent)),
        layout, nn::LatentForm::image);
  }
  nn::TokenLayout of_mask = layout;
  of_mask.channels = source.mask_pixels.size(1);
  const Tensor mask = nn::tokens_of_latent(source.mask_pixels, of_mask, nn::LatentForm::image);
  std::vector<Tensor> rows;
  for (int64_t s = 0; s < sequences; ++s) {
    const int64_t first = s % samples * layout.tokens();
    rows.push_back(
        ops::concat_columns({image.slice(0, first, first + layout.tokens()).contiguous(), mask}));
  }
  const Tensor fill_tokens = ops::concat_rows(rows);
  job.asked.conditioning.tensors["fill_tokens"] =
      fill_tokens.reshape({sequences, layout.tokens(), fill_tokens.size(1)});
}

void encode_images(const runtime::ModelState& state, const GenerateRequest& request, Job& job) {
  if (!job.asked.source && job.asked.references.empty()) return;
  const tensor::BindScope bind(state.workers.scope(-1, &job.counted.meters));
  const auto encoder = state.load_vae_encoder();
  if (job.asked.source) encode_image(state, *encoder, job, *job.asked.source);
  if (job.asked.source && job.asked.source->masked.defined()) {
    SourceImage masked;
    masked.pixels = job.asked.source->masked;
    masked.tiles = job.asked.source->tiles;
    encode_image(state, *encoder, job, masked);
    job.asked.source->masked_mean = masked.mean;
    job.asked.source->masked_logvar = masked.logvar;
  }
  for (SourceImage& image : job.asked.references) {
    image.takes_mean = true;
    encode_image(state, *encoder, job, image);
  }
  set_references(state, job);
  set_fill(request, job);
}

}  // namespace tessera::diffusion

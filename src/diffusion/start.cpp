#include "diffusion/start.h"

#include <cmath>

#include "base/fail.h"
#include "ops/elementwise.h"

namespace tessera::diffusion {

using tensor::DType;
using tensor::Tensor;

namespace {

// mean + exp(logvar / 2) * noise, of [1 or more, C, h, w] each.
Tensor sampled(const Tensor& mean, const Tensor& logvar, const Tensor& noise) {
  if (noise.is_meta()) return noise;
  const Tensor x = Tensor::empty(noise.shape(), DType::f32);
  const int64_t sample_elements = mean.elements();
  for (int64_t i = 0; i < noise.elements(); ++i)
    x.data<float>()[i] =
        mean.data<float>()[i % sample_elements] +
        std::exp(0.5f * logvar.data<float>()[i % sample_elements]) * noise.data<float>()[i];
  return x;
}

// A mask [1, 1, h, w], repeated for `channels` channels: x, or 1 - x.
Tensor for_channels(const Tensor& mask, int64_t channels, bool inverse) {
  const tensor::Shape shape{1, channels, mask.size(2), mask.size(3)};
  if (mask.is_meta()) return Tensor::empty(shape, DType::f32, mask.device());
  const Tensor x = Tensor::empty(shape, DType::f32);
  for (int64_t i = 0; i < x.elements(); ++i) {
    const float level = mask.data<float>()[i % mask.elements()];
    x.data<float>()[i] = inverse ? 1.0f - level : level;
  }
  return x;
}

}  // namespace

Start::Start(const GenerateRequest& request, const Job& job, const parallel::Setup& setup)
    : job_(job),
      setup_(setup),
      noise_(request.noise, request.seeds.empty() ? std::vector{request.seed} : request.seeds) {
  if (job.asked.source)
    begin_with(*job.asked.source, !request.seeds.empty());
  else
    begin_with_noise();
}

void Start::begin_with_noise() {
  const auto it = job_.asked.given.find("latents");
  const bool is_drawn = it == job_.asked.given.end();
  latents_ = is_drawn ? tokens(draw(job_.noise_shape()), job_.noise_form())
                      : tokens(it->second, job_.planned.form);
  const float scale = job_.planned.sampler->initial_scale();
  if (scale != 1) latents_ = ops::blend(latents_, scale, latents_, 0);
}

// Draws in diffusers' order: for the image's latent, shared by all samples of a seed; then the
// samples' noise; and for a masked image a draw without effect.
void Start::begin_with(const SourceImage& source, bool each_alone) {
  const tensor::Shape shape = job_.noise_shape();
  const tensor::Shape of_image = each_alone ? shape : shape.with(0, 1);
  const bool mean = source.takes_mean;
  const Tensor clean =
      repeated(mean ? source.mean : sampled(source.mean, source.logvar, draw(of_image)));
  kept_latent_.noise = tokens(draw(shape), job_.noise_form());
  if ((source.mask.defined() || source.masked.defined()) && !mean) draw(of_image);
  kept_latent_.clean = tokens(clean, nn::LatentForm::image);
  const sample::Sampler::Noised at = job_.planned.sampler->noised(0);
  latents_ = ops::blend(kept_latent_.clean, static_cast<float>(at.signal), kept_latent_.noise,
                        static_cast<float>(at.noise));
  if (!source.mask.defined()) {
    kept_latent_ = {};
    return;
  }
  const int64_t channels = job_.planned.layout.channels;
  kept_latent_.mask =
      tokens(repeated(for_channels(source.mask, channels, false)), nn::LatentForm::image);
  kept_latent_.rest =
      tokens(repeated(for_channels(source.mask, channels, true)), nn::LatentForm::image);
}

Tensor drawn_fill(const GenerateRequest& request, const Job& job) {
  Noise noise(request.noise, request.seeds.empty() ? std::vector{request.seed} : request.seeds);
  const tensor::Shape shape = job.noise_shape();
  const tensor::Shape of_image = request.seeds.empty() ? shape.with(0, 1) : shape;
  if (job.asked.source->takes_mean) return job.asked.source->masked_mean;
  noise.draw(of_image);  // for the image that the run starts from,
  noise.draw(shape);     // and its noise
  return sampled(job.asked.source->masked_mean, job.asked.source->masked_logvar,
                 noise.draw(of_image));
}

// One for each sample.
Tensor Start::repeated(const Tensor& x) const {
  if (x.size(0) == job_.drawn_samples()) return x;
  return ops::concat_rows(std::vector(static_cast<size_t>(job_.drawn_samples()), x));
}

Tensor Start::noise(int step) {
  const auto it = job_.asked.given.find("noise." + std::to_string(step));
  if (it == job_.asked.given.end()) {
    for (int i = 1; i < job_.planned.sampler->noise_draws(step); ++i) draw(job_.noise_shape());
    return tokens(draw(job_.noise_shape()), job_.noise_form());
  }
  require(it->second.shape() == job_.given_shape(), ErrorCode::usage,
          "'{}': 'noise.{}' is {}; expected {}", job_.asked.given_by, step,
          it->second.shape().str(), job_.given_shape().str());
  return tokens(it->second, job_.planned.form);
}

Tensor Start::draw(const tensor::Shape& shape) {
  const bool meta = setup_.residence.device == tensor::Device::meta;
  return meta ? Tensor::empty(shape, DType::f32, tensor::Device::meta) : noise_.draw(shape);
}

Tensor Start::tokens(const Tensor& whole, nn::LatentForm form) const {
  const Tensor own_latents = ops::cast(
      whole.slice(0, job_.planned.first_sample, job_.planned.first_sample + job_.samples()),
      DType::f32);
  return setup_.partition.cut(nn::tokens_of_latent(own_latents, job_.planned.layout, form),
                              setup_.rank);
}

}  // namespace tessera::diffusion

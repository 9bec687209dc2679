#include "diffusion/source_image.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/fail.h"
#include "base/printable.h"
#include "diffusion/job.h"
#include "media/lanczos.h"
#include "media/read_image.h"
#include "nn/local_spatial.h"
#include "ops/elementwise.h"
#include "ops/finite.h"

namespace tessera::diffusion {
namespace {

using media::Pixels;
using tensor::DType;
using tensor::Tensor;

constexpr double kUsualStrength = 0.6;
constexpr int kMostMargin = 16384;

media::ReadImage read(const InputImage& given, const std::string& option) {
  if (!given.bytes.empty()) return media::read_image(given.bytes, option);
  if (!given.file.empty()) return media::read_image_file(given.file);
  const Image& image = given.pixels;
  const bool whole = image.width > 0 && image.height > 0 && image.width <= media::kMostPixels &&
                     image.height <= media::kMostPixels / image.width &&
                     std::ssize(image.rgb) == image.width * image.height * 3;
  require(whole, ErrorCode::usage,
          "{}: an image of {} x {} with {} bytes; expected 3 bytes for each of at most 2^26 pixels",
          option, image.width, image.height, image.rgb.size());
  return {{static_cast<int>(image.width), static_cast<int>(image.height), image.rgb}, {}};
}

/// The image of a request, and how grey its mask is; without bytes: there is none.
struct Read {
  Pixels image, mask;
};

Pixels transparent(const media::ReadImage& read, const char* of) {
  require(!read.alpha.empty(), ErrorCode::usage,
          "--mask-alpha: the {} has no alpha channel; leave it out, or give one that has", of);
  Pixels mask{read.image.width, read.image.height, 1, read.alpha};
  for (uint8_t& level : mask.bytes) level = static_cast<uint8_t>(255 - level);
  return mask;
}

// With the margins around both: the image's borders stretched, and white.
void add_margins(const Margins& margins, Read& both) {
  if (!margins.any()) return;
  const Pixels from = both.image;
  const int width = from.width + margins.left + margins.right;
  const int height = from.height + margins.top + margins.bottom;
  require(width <= media::kMostPixels / height, ErrorCode::usage,
          "--outpaint makes an image of {} x {} pixels; expected at most 2^26", width, height);
  if (both.mask.bytes.empty())
    both.mask = {from.width, from.height, 1, std::vector<uint8_t>(from.bytes.size() / 3)};
  const Pixels mask = media::resize_lanczos(both.mask, from.width, from.height);
  both.image = {width, height, 3, {}};
  both.mask = {width, height, 1, {}};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      const int column = std::clamp(x - margins.left, 0, from.width - 1);
      const int line = std::clamp(y - margins.top, 0, from.height - 1);
      const bool inside = column == x - margins.left && line == y - margins.top;
      const size_t at = size_t(line) * size_t(from.width) + size_t(column);
      for (size_t c = 0; c < 3; ++c) both.image.bytes.push_back(from.bytes[at * 3 + c]);
      both.mask.bytes.push_back(inside ? mask.bytes[at] : 255);
    }
}

Read read_both(const GenerateRequest& request) {
  const media::ReadImage image = read(request.images.front(), "--image");
  Read both{media::pixels_of(image.image), {}};
  if (request.mask) {
    const media::ReadImage mask = read(*request.mask, "--mask");
    both.mask = request.alpha_mask ? transparent(mask, "mask") : media::grey_of(mask.image);
  } else if (request.alpha_mask) {
    both.mask = transparent(image, "image");
  }
  if (!both.mask.bytes.empty()) both.mask = media::blurred(both.mask, request.mask_blur);
  add_margins(request.outpaint, both);
  return both;
}

media::Fitting fitting_of(ImageFitting fitting) {
  switch (fitting) {
    case ImageFitting::fill: return media::Fitting::fill;
    case ImageFitting::crop: return media::Fitting::crop;
    default: return media::Fitting::stretch;
  }
}

// 2 * level / 255 - 1, channels first.
Tensor numbers_of(const Pixels& image) {
  const int64_t count = int64_t{image.width} * image.height;
  Tensor x = Tensor::empty({1, 3, image.height, image.width}, DType::f32);
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t i = 0; i < count; ++i)
      x.data<float>()[c * count + i] =
          2.0f * (static_cast<float>(image.bytes[static_cast<size_t>(i * 3 + c)]) / 255.0f) - 1.0f;
  return x;
}

// The mask of each latent pixel: its corner pixel as 0 or 1, or for a soft mask the mean.
Tensor latent_mask(const Pixels& mask, int64_t factor, bool soft) {
  const int64_t height = mask.height / factor, width = mask.width / factor;
  Tensor x = Tensor::empty({1, 1, height, width}, DType::f32);
  for (int64_t r = 0; r < height; ++r)
    for (int64_t c = 0; c < width; ++c) {
      double sum = 0;
      for (int64_t dy = 0; dy < (soft ? factor : 1); ++dy)
        for (int64_t dx = 0; dx < (soft ? factor : 1); ++dx)
          sum += mask.bytes[static_cast<size_t>((r * factor + dy) * mask.width + c * factor + dx)];
      x.data<float>()[r * width + c] =
          soft ? static_cast<float>(sum / double(factor * factor) / 255.0)
               : (sum >= 128 ? 1.0f : 0.0f);
    }
  return x;
}

void check_model(const runtime::ModelState& state, const GenerateRequest& request, const Job& job) {
  require(request.images.size() == 1, ErrorCode::usage,
          "--image was given {} times; this model starts from one image", request.images.size());
  require(state.spec->takes_text() && !state.video() && job.layout.size[0] == 1, ErrorCode::usage,
          "--image: '{}' does not start from an image; models of images from text do", state.name);
  require(state.has_vae(), ErrorCode::model,
          "'{}' has no VAE, which --image needs to encode the image", state.name);
  require(request.initial_latents.empty() && request.initial_tensors.empty(), ErrorCode::usage,
          "--initial-latents and --image both say what the run starts from: leave out one");
  const sample::Sampler::Noised at = job.sampler->noised(0);
  require(
      at.signal != 0 || at.noise != 0, ErrorCode::usage,
      "--image: a run with the scheduler {} cannot start from an image; use another --scheduler",
      job.sampler_name);
}

// Moments behind each other, as tiles of them are joined.
Tensor joined(const models::VaeMoments& m) {
  const tensor::Shape flat{m.mean.size(1), m.mean.size(2) * m.mean.size(3)};
  return ops::concat_rows({m.mean.reshape(flat), m.logvar.reshape(flat)})
      .reshape({1, 2 * m.mean.size(1), m.mean.size(2), m.mean.size(3)});
}

}  // namespace

bool starts_from_image(const GenerateRequest& request) {
  if (!request.images.empty()) return true;
  const char* const alone = request.mask             ? "--mask"
                            : request.alpha_mask     ? "--mask-alpha"
                            : request.strength       ? "--strength"
                            : request.outpaint.any() ? "--outpaint"
                                                     : nullptr;
  require(!alone, ErrorCode::usage, "{} is about an image that a run starts from: add --image F",
          alone ? alone : "");
  return false;
}

int left_out_steps(const GenerateRequest& request, int steps) {
  const double strength = request.strength.value_or(kUsualStrength);
  require(strength >= 0 && strength <= 1, ErrorCode::usage,
          "--strength {}: expected a number from 0 (the image as it is) to 1 (noise alone)",
          strength);
  const double kept = std::min(steps * strength, double(steps));
  const int left_out = static_cast<int>(std::max(steps - kept, 0.0));
  require(steps < 1 || left_out < steps, ErrorCode::usage,
          "--strength {} of {} steps leaves none to run; give more of either", strength, steps);
  return left_out;
}

SourceSize size_with_margins(const runtime::ModelState& state, const GenerateRequest& request) {
  if (!request.outpaint.any() || request.images.empty()) return {};
  const media::ReadImage image = read(request.images.front(), "--image");
  const std::array<int64_t, 3> patch = state.spec->layout(0, 0).patch;
  const auto whole = [&](int64_t pixels, int64_t unit) { return pixels / unit * unit; };
  const Margins& m = request.outpaint;
  return {whole(int64_t{image.image.width} + m.left + m.right, patch[2] * state.vae_factor()),
          whole(int64_t{image.image.height} + m.top + m.bottom, patch[1] * state.vae_factor())};
}

void plan_source(const runtime::ModelState& state, const GenerateRequest& request, Job& job) {
  if (!starts_from_image(request)) return;
  check_model(state, request, job);
  const int64_t factor = state.vae_factor();
  const auto height = static_cast<int>(job.layout.size[1] * factor);
  const auto width = static_cast<int>(job.layout.size[2] * factor);
  const Read both = read_both(request);
  const media::Fitting fitting = fitting_of(request.image_fitting);
  SourceImage source;
  source.pixels = numbers_of(media::fit_pixels(both.image, width, height, fitting));
  if (!both.mask.bytes.empty())
    source.mask = latent_mask(media::fit_pixels(both.mask, width, height, fitting), factor,
                              request.soft_mask);
  if (both.image.width != width || both.image.height != height)
    job.notes.push_back(fmt::format("the image of {} x {} pixels becomes {} x {}{}",
                                    both.image.width, both.image.height, width, height,
                                    request.width + request.height == 0 && !request.outpaint.any()
                                        ? ", the size of the model: see --width and --height"
                                        : ""));
  job.source = std::move(source);
}

void encode_source(const runtime::ModelState& state, Job& job) {
  if (!job.source) return;
  SourceImage& source = *job.source;
  const tensor::BindScope bind(state.workers.scope(-1, &job.meters));
  const auto encoder = state.load_vae_encoder();
  nn::LocalSpatial spatial(job.vae_chunk);
  const auto whole = [&](const Tensor& x) {
    return runtime::on_host(joined(encoder->encode(x.to(state.device()), spatial)));
  };
  const Tensor moments =
      source.tiles ? models::encode_tiles(source.pixels, state.vae_factor(), *source.tiles, whole)
                   : whole(source.pixels);
  const int64_t channels = moments.size(1) / 2;
  const models::VaeMoments scaled =
      encoder->scale({moments.slice(1, 0, channels).contiguous(),
                      moments.slice(1, channels, 2 * channels).contiguous()});
  if (!moments.is_meta()) ops::require_finite(scaled.mean, "the VAE's encoder");
  require(channels == job.layout.channels, ErrorCode::model,
          "'{}': the VAE makes {} latent channels, the transformer takes {}", state.name, channels,
          job.layout.channels);
  source.mean = scaled.mean;
  source.logvar = scaled.logvar;
}

}  // namespace tessera::diffusion

namespace tessera {

Margins parse_margins(const std::string& text) {
  std::array<int, 4> sides{};
  size_t count = 0;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (; count < sides.size(); ++count) {
    const auto [next, error] = std::from_chars(at, end, sides[count]);
    if (error != std::errc() || sides[count] < 0 || sides[count] > diffusion::kMostMargin) break;
    at = next;
    if (at == end || *at != ',') {
      ++count;
      break;
    }
    ++at;
  }
  require(at == end && (count == 1 || count == 4), ErrorCode::usage,
          "--outpaint {}: expected pixels of all sides, or of left,top,right,bottom, each 0 to {}",
          base::printable(text), diffusion::kMostMargin);
  if (count == 1) sides.fill(sides[0]);
  return {sides[0], sides[1], sides[2], sides[3]};
}

}  // namespace tessera

#include "diffusion/source_image.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/fail.h"
#include "base/printable.h"
#include "diffusion/input_pixels.h"
#include "diffusion/job.h"
#include "diffusion/overlay.h"

namespace tessera::diffusion {
namespace {

using media::Pixels;
using tensor::DType;
using tensor::Tensor;

/// The image of a request, and its mask in gray; without an image the bytes are empty.
struct ImageAndMask {
  Pixels image, mask;
};

Pixels transparent(const media::ReadImage& read, const char* subject) {
  require(!read.alpha.empty(), ErrorCode::usage,
          "`mask_alpha`: the {} has no alpha channel; leave it out, or give one that has", subject);
  Pixels mask{read.image.width, read.image.height, 1, read.alpha};
  for (uint8_t& level : mask.bytes) level = static_cast<uint8_t>(255 - level);
  return mask;
}

// With the margins around both: the image's borders stretched, and white.
void add_margins(const Margins& margins, ImageAndMask& image_and_mask) {
  if (!margins.any()) return;
  const Pixels from = image_and_mask.image;
  const int width = from.width + margins.left + margins.right;
  const int height = from.height + margins.top + margins.bottom;
  require(width <= media::kMostPixels / height, ErrorCode::usage,
          "`outpaint` makes an image of {} x {} pixels; expected at most 2^26", width, height);
  if (image_and_mask.mask.bytes.empty())
    image_and_mask.mask = {from.width, from.height, 1, std::vector<uint8_t>(from.bytes.size() / 3)};
  const Pixels mask = media::resize_lanczos(image_and_mask.mask, from.width, from.height);
  image_and_mask.image = {width, height, 3, {}};
  image_and_mask.mask = {width, height, 1, {}};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      const int column = std::clamp(x - margins.left, 0, from.width - 1);
      const int line = std::clamp(y - margins.top, 0, from.height - 1);
      const bool inside = column == x - margins.left && line == y - margins.top;
      const size_t at = size_t(line) * size_t(from.width) + size_t(column);
      for (size_t c = 0; c < 3; ++c) image_and_mask.image.bytes.push_back(from.bytes[at * 3 + c]);
      image_and_mask.mask.bytes.push_back(inside ? mask.bytes[at] : 255);
    }
}

bool asks_size(const GenerateRequest& request) { return request.width + request.height > 0; }

// Whether the run changes only a part of the image.
bool paints(const GenerateRequest& request) { return request.mask || request.alpha_mask; }

// Reads image and mask, with at most `most` pixels if the request has no size.
ImageAndMask read_both(const GenerateRequest& request, int64_t most) {
  const media::ReadImage image = read_input(request.images.front(), "`image`");
  ImageAndMask image_and_mask{limited(media::pixels_of(image.image), asks_size(request) ? 0 : most),
                              {}};
  if (request.mask) {
    const media::ReadImage mask = read_input(*request.mask, "`mask`");
    image_and_mask.mask =
        request.alpha_mask ? transparent(mask, "mask") : media::grey_of(mask.image);
  } else if (request.alpha_mask) {
    image_and_mask.mask = transparent(image, "image");
  }
  if (!image_and_mask.mask.bytes.empty())
    image_and_mask.mask = media::blurred(image_and_mask.mask, request.mask_blur);
  add_margins(request.outpaint, image_and_mask);
  return image_and_mask;
}

media::Fitting fitting_of(ImageFitting fitting) {
  switch (fitting) {
    case ImageFitting::fill: return media::Fitting::fill;
    case ImageFitting::crop: return media::Fitting::crop;
    default: return media::Fitting::stretch;
  }
}

/// The mask pixels for a square of the latent, from `first` on; and whether each becomes black or
/// white.
struct MaskPixels {
  int64_t first = 0, count = 1;
  bool binary = true;
};

// The mean of mask pixels for each square of `square` pixels.
std::vector<float> mask_means(const Pixels& mask, int64_t square, const MaskPixels& window) {
  const int64_t height = mask.height / square, width = mask.width / square;
  std::vector<float> means;
  for (int64_t r = 0; r < height; ++r)
    for (int64_t c = 0; c < width; ++c) {
      double sum = 0;
      for (int64_t y = 0; y < window.count; ++y)
        for (int64_t x = 0; x < window.count; ++x) {
          const uint8_t level = mask.bytes[static_cast<size_t>(
              (r * square + window.first + y) * mask.width + c * square + window.first + x)];
          sum += !window.binary ? level / 255.0 : level >= 128 ? 1 : 0;
        }
      means.push_back(static_cast<float>(sum / double(window.count * window.count)));
    }
  return means;
}

// The mask of each latent pixel: its corner pixel, or for a soft mask the mean. `patch` latent
// pixels a side share one, the mean of the four in the middle.
Tensor latent_mask(const Pixels& mask, int64_t factor, int64_t patch, bool soft) {
  const int64_t square = factor * patch;
  MaskPixels window;
  if (patch > 1) window = {square / 2 - 1, 2, true};
  if (soft) window = {0, square, false};
  const std::vector<float> means = mask_means(mask, square, window);
  const int64_t height = mask.height / factor, width = mask.width / factor;
  Tensor x = Tensor::empty({1, 1, height, width}, DType::f32);
  for (int64_t r = 0; r < height; ++r)
    for (int64_t c = 0; c < width; ++c)
      x.data<float>()[r * width + c] =
          means[static_cast<size_t>(r / patch * (width / patch) + c / patch)];
  return x;
}

// The image and its mask become their masked region, which is laid over the image at the end.
void cut_to_mask(int pad, int width, int height, ImageAndMask& image_and_mask, Job& job) {
  require(!image_and_mask.mask.bytes.empty(), ErrorCode::usage,
          "`padding_mask_crop` {}: the run has no mask; add `mask` F", pad);
  const Overlay region =
      masked_region(image_and_mask.image, image_and_mask.mask, width, height, pad);
  job.planned.notes.push_back(
      fmt::format("paints the region of {} x {} pixels at {}, {} of the image", region.width,
                  region.height, region.left, region.top));
  image_and_mask = {region_of(region.image, region), region_of(region.mask, region)};
  job.asked.overlay = std::make_shared<const Overlay>(region);
}

void check_model(const runtime::ModelState& state, const GenerateRequest& request, const Job& job) {
  require(request.images.size() == 1 || state.spec->takes_references, ErrorCode::usage,
          "`image` was given {} times; this model starts from one image", request.images.size());
  require(state.spec->takes_text() && !state.video() && job.planned.layout.size[0] == 1,
          ErrorCode::usage,
          "`image`: '{}' does not start from an image; models of images from text do", state.name);
  require(state.has_vae(), ErrorCode::model,
          "'{}' has no VAE, which `image` needs to encode the image", state.name);
  require(request.initial_latents.empty() && request.initial_tensors.empty(), ErrorCode::usage,
          "`initial_latents` and `image` both say what the run starts from: leave out one");
  const sample::Sampler::Noised at = job.planned.sampler->noised(0);
  require(
      at.signal != 0 || at.noise != 0, ErrorCode::usage,
      "`image`: a run with the scheduler {} cannot start from an image; use another `scheduler`",
      job.planned.sampler_name);
}

}  // namespace

bool starts_from_image(const models::PipelineSpec& spec, const GenerateRequest& request) {
  const bool has_edit_options =
      request.strength || paints(request) || request.outpaint.any() || request.padding_mask_crop;
  if (!request.images.empty()) return has_edit_options || !spec.takes_references;
  const char* const option = request.mask                ? "`mask`"
                             : request.alpha_mask        ? "`mask_alpha`"
                             : request.strength          ? "`strength`"
                             : request.outpaint.any()    ? "`outpaint`"
                             : request.padding_mask_crop ? "`padding_mask_crop`"
                                                         : nullptr;
  require(!option, ErrorCode::usage, "{} is about an image that a run starts from: add `image` F",
          option ? option : "");
  return false;
}

int left_out_steps(const models::PipelineSpec& spec, const GenerateRequest& request, int steps) {
  const double strength =
      request.strength.value_or(paints(request) ? spec.inpaint_strength : spec.strength);
  require(strength >= 0 && strength <= 1, ErrorCode::usage,
          "`strength` {}: expected a number from 0 (the image as it is) to 1 (noise alone)",
          strength);
  const double run_steps = std::min(steps * strength, double(steps));
  const int left_out = static_cast<int>(std::max(steps - run_steps, 0.0));
  require(steps < 1 || left_out < steps, ErrorCode::usage,
          "`strength` {} of {} steps leaves none to run; give more of either", strength, steps);
  return left_out;
}

SourceSize size_of_source(const runtime::ModelState& state, const GenerateRequest& request) {
  const models::PipelineSpec& spec = *state.spec;
  if (asks_size(request) || !starts_from_image(spec, request)) return {};
  if (!request.outpaint.any() && !spec.sized_by_image) return {};
  const media::ReadImage read = read_input(request.images.front(), "`image`");
  const Pixels image = limited(media::pixels_of(read.image), spec.most_image_pixels);
  const std::array<int64_t, 3> patch = spec.layout(0, 0).patch;
  const auto whole = [&](int64_t pixels, int64_t unit) { return pixels / unit * unit; };
  const Margins& m = request.outpaint;
  return {whole(int64_t{image.width} + m.left + m.right, patch[2] * state.vae_factor()),
          whole(int64_t{image.height} + m.top + m.bottom, patch[1] * state.vae_factor())};
}

void plan_source(const runtime::ModelState& state, const GenerateRequest& request, Job& job) {
  const models::PipelineSpec& spec = *state.spec;
  const bool starts = starts_from_image(spec, request);
  require(
      !spec.fills_mask || (starts && (paints(request) || request.outpaint.any())), ErrorCode::usage,
      "'{}' paints the masked region of an image: give `image` F and `mask` F (or `mask_alpha`, "
      "`outpaint` P)",
      state.name);
  if (!starts) return;
  check_model(state, request, job);
  const int64_t factor = state.vae_factor();
  const auto height = static_cast<int>(job.planned.layout.size[1] * factor);
  const auto width = static_cast<int>(job.planned.layout.size[2] * factor);
  ImageAndMask image_and_mask = read_both(request, spec.most_image_pixels);
  media::Fitting fitting = fitting_of(request.image_fitting);
  if (request.padding_mask_crop) {
    cut_to_mask(*request.padding_mask_crop, width, height, image_and_mask, job);
    fitting = media::Fitting::fill;
  }
  SourceImage source;
  source.pixels = numbers_of(media::fit_pixels(image_and_mask.image, width, height, fitting));
  if (!image_and_mask.mask.bytes.empty()) {
    const Pixels mask = media::fit_pixels(image_and_mask.mask, width, height, fitting);
    if (spec.fills_mask) {
      source.mask_pixels = mask_pixels(mask, factor, request.soft_mask);
      source.masked = masked_image(source.pixels, source.mask_pixels, factor);
    } else {
      source.mask = latent_mask(mask, factor, spec.masks_patches ? job.planned.layout.patch[1] : 1,
                                request.soft_mask);
    }
  }
  source.takes_mean = spec.encodes_mean || !state.vae().draws;
  source.referenced = spec.takes_references && !image_and_mask.mask.bytes.empty();
  if (!job.asked.overlay &&
      (image_and_mask.image.width != width || image_and_mask.image.height != height))
    job.planned.notes.push_back(
        fmt::format("the image of {} x {} pixels becomes {} x {}{}", image_and_mask.image.width,
                    image_and_mask.image.height, width, height,
                    !asks_size(request) && !request.outpaint.any() && !spec.sized_by_image
                        ? ", the size of the model: see `width` and `height`"
                        : ""));
  job.asked.source = std::move(source);
}

}  // namespace tessera::diffusion

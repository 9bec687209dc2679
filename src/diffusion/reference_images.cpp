#include "diffusion/reference_images.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/fail.h"
#include "diffusion/input_pixels.h"
#include "diffusion/sizes.h"
#include "ops/elementwise.h"

namespace tessera::diffusion {
namespace {

using media::Pixels;
using tensor::DType;
using tensor::Tensor;

constexpr int kLeastSide = 64, kMostRatio = 8;

// Pixels of a side of a token.
std::array<int64_t, 2> token_sides(const runtime::ModelState& state) {
  const std::array<int64_t, 3> patch = state.spec->trained.patch;
  return {patch[1] * state.vae_factor(), patch[2] * state.vae_factor()};
}

// The smaller one of two that are as near.
std::pair<int, int> nearest_aspect(const std::vector<std::pair<int, int>>& sizes, double aspect) {
  return *std::ranges::min_element(sizes, {}, [&](const std::pair<int, int>& size) {
    return std::pair(std::abs(aspect - double(size.first) / size.second), size);
  });
}

Pixels read_reference(const runtime::ModelState& state, const InputImage& input, size_t number) {
  const media::ReadImage read = read_input(input, fmt::format("`image` {}", number + 1));
  const int width = read.image.width, height = read.image.height;
  const auto [tall, wide] = token_sides(state);
  if (const auto& sizes = state.spec->reference_sizes; !sizes.empty()) {
    const int64_t across = width / wide * wide, down = height / tall * tall;  // as diffusers counts
    require(across > 0 && down > 0, ErrorCode::usage,
            "`image` {}: a reference image of {} x {} pixels; expected at least {} x {}",
            number + 1, width, height, wide, tall);
    const auto [w, h] = nearest_aspect(sizes, double(across) / double(down));
    return media::resize_lanczos(media::pixels_of(read.image), static_cast<int>(w / wide * wide),
                                 static_cast<int>(h / tall * tall));
  }
  require(std::min(width, height) >= kLeastSide &&
              std::max(width, height) <= int64_t{kMostRatio} * std::min(width, height),
          ErrorCode::usage,
          "`image` {}: a reference image of {} x {} pixels; expected sides of at least {}, one at "
          "most {} times the other",
          number + 1, width, height, kLeastSide, kMostRatio);
  const Pixels image = limited(media::pixels_of(read.image), state.spec->most_image_pixels);
  return media::cut_middle(image, static_cast<int>(image.width / wide * wide),
                           static_cast<int>(image.height / tall * tall));
}

// The images of a job with latents beside the noise.
std::vector<const SourceImage*> beside_noise(const Job& job) {
  std::vector<const SourceImage*> images;
  if (job.asked.source && job.asked.source->referenced) images.push_back(&*job.asked.source);
  for (const SourceImage& image : job.asked.references) images.push_back(&image);
  return images;
}

// Lines and columns of tokens of an image.
std::array<int64_t, 2> grid_of(const runtime::ModelState& state, const SourceImage& image) {
  const auto [tall, wide] = token_sides(state);
  return {image.pixels.size(2) / tall, image.pixels.size(3) / wide};
}

// [tokens, channels of a token]
Tensor tokens_of(const runtime::ModelState& state, const Job& job, const SourceImage& image) {
  const auto [lines, columns] = grid_of(state, image);
  nn::TokenLayout layout = job.planned.layout;
  layout.extra = 0;
  layout.size = {1, lines * layout.patch[1], columns * layout.patch[2]};
  if (!image.mean.defined())
    return Tensor::zeros({layout.tokens(), layout.token_channels()}, DType::f32);
  return nn::tokens_of_latent(image.mean, layout, nn::LatentForm::image);
}

}  // namespace

std::span<const InputImage> references_of(const models::PipelineSpec& spec,
                                          const GenerateRequest& request) {
  if (!spec.takes_references) return {};
  const std::span<const InputImage> images(request.images);
  return starts_from_image(spec, request) ? images.subspan(1) : images;
}

void read_references(const runtime::ModelState& state, const GenerateRequest& request, Job& job) {
  const std::span<const InputImage> references = references_of(*state.spec, request);
  if (references.empty()) return;
  require(references.size() <= state.spec->most_references, ErrorCode::usage,
          "`image` was given {} times; '{}' takes {} reference image{}", request.images.size(),
          state.name, state.spec->most_references, state.spec->most_references == 1 ? "" : "s");
  const size_t before = request.images.size() - references.size();
  for (size_t i = 0; i < references.size(); ++i) {
    SourceImage image;
    image.pixels = numbers_of(read_reference(state, references[i], before + i));
    job.asked.references.push_back(std::move(image));
  }
}

void plan_references(const runtime::ModelState& state, Job& job) {
  for (const SourceImage* image : beside_noise(job)) {
    const auto [lines, columns] = grid_of(state, *image);
    job.planned.layout.extra += lines * columns;
  }
  check_tokens(job.planned.layout,
               int64_t{job.samples()} * (job.planned.guidance.branches() ? 2 : 1));
  set_references(state, job);
}

void set_references(const runtime::ModelState& state, Job& job) {
  const std::vector<const SourceImage*> images = beside_noise(job);
  if (images.empty()) return;
  const int64_t sequences = job.asked.conditioning.tensors.begin()->second.size(0);
  std::vector<int32_t> sizes;
  std::vector<Tensor> tokens;
  for (const SourceImage* image : images) {
    for (const int64_t side : grid_of(state, *image)) sizes.push_back(static_cast<int32_t>(side));
    tokens.push_back(tokens_of(state, job, *image));
  }
  const Tensor reference_rows = ops::concat_rows(tokens);
  const Tensor repeated =
      ops::concat_rows(std::vector(static_cast<size_t>(sequences), reference_rows));
  std::vector<int32_t> of_all;
  for (int64_t s = 0; s < sequences; ++s) of_all.insert(of_all.end(), sizes.begin(), sizes.end());
  job.asked.conditioning.tensors["reference_tokens"] =
      repeated.reshape({sequences, reference_rows.size(0), reference_rows.size(1)});
  job.asked.conditioning.tensors["reference_sizes"] =
      Tensor::from(std::span<const int32_t>(of_all), {sequences, std::ssize(sizes)});
}

}  // namespace tessera::diffusion

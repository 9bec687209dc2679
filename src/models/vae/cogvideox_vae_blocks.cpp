#include "models/vae/cogvideox_vae_blocks.h"

#include <algorithm>

#include "ops/elementwise.h"
#include "ops/plane_affine.h"

namespace tessera::models {
namespace {

using tensor::DType;
using tensor::Tensor;

Tensor rows(const Tensor& x, int64_t begin, int64_t end) { return x.slice(0, begin, end); }

}  // namespace

CausalConv::CausalConv(const nn::Weights& weights, const std::string& name, int64_t out, int64_t in,
                       int64_t size, DType dtype)
    : taps_(weights.frames(name + ".weight", name + ".bias", {out, in, size, size, size}, dtype)),
      pad_(static_cast<int>(size / 2)) {}

Frames CausalConv::operator()(const Frames& x, FrameScene& scene, DType out) const {
  const int64_t before = std::ssize(*taps_) - 1;
  Frames all = x;
  if (before > 0) {
    all.before = scene.earlier_frames[this];
    if (!all.before.defined()) {
      const std::vector<Tensor> first(static_cast<size_t>(before), rows(x.data, 0, 1));
      all.before = ops::concat_rows(first);
    }
  }
  ops::Conv2dOptions options{
      .pad_top = pad_, .pad_bottom = pad_, .pad_left = pad_, .pad_right = pad_};
  options.out_as_input = false;
  options.out = out;
  Frames output = scene.spatial.convolve(*taps_, all, options);
  if (before > 0) {
    const int64_t frames = x.data.size(0), count = std::min(frames, before);
    scene.earlier_frames[this] =
        ops::concat_rows({rows(all.before, count, before), rows(x.data, frames - count, frames)});
  }
  return output;
}

FrameNorm::FrameNorm(const nn::Weights& weights, const std::string& name, int groups,
                     int64_t channels, int64_t latent, DType dtype)
    : by_latent_(latent > 0) {
  const std::string norm = by_latent_ ? name + ".norm_layer" : name;
  norm_ = {groups, weights.vector(norm + ".weight", channels),
           weights.vector(norm + ".bias", channels)};
  if (!by_latent_) return;
  gain_ = CausalConv(weights, name + ".conv_y.conv", channels, latent, 1, dtype);
  bias_ = CausalConv(weights, name + ".conv_b.conv", channels, latent, 1, dtype);
}

Frames FrameNorm::operator()(const Frames& x, const Frames& latent, FrameScene& scene) const {
  const Tensor norm = scene.spatial.scale_shift(norm_, x, true);
  if (by_latent_)
    return {ops::plane_affine(x.data, norm, gain_(latent, scene, DType::f32).data,
                              bias_(latent, scene, DType::f32).data),
            x.height, x.begin};
  const tensor::Shape tall{1, x.data.size(0) * x.data.size(1), x.data.size(2), x.data.size(3)};
  return {ops::channel_affine(x.data.reshape(tall), norm, true).reshape(x.data.shape()), x.height,
          x.begin};
}

FrameResnet::FrameResnet(const nn::Weights& weights, const std::string& name, int groups,
                         int64_t in, int64_t out, int64_t latent, DType dtype)
    : norm1_(weights, name + ".norm1", groups, in, latent, dtype),
      norm2_(weights, name + ".norm2", groups, out, latent, dtype),
      conv1_(weights, name + ".conv1.conv", out, in, 3, dtype),
      conv2_(weights, name + ".conv2.conv", out, out, 3, dtype),
      wider_(in != out),
      dtype_(dtype) {
  if (wider_) shortcut_ = CausalConv(weights, name + ".conv_shortcut", out, in, 1, dtype);
}

Frames FrameResnet::operator()(const Frames& x, const Frames& latent, FrameScene& scene) const {
  Frames frames = norm1_(x, latent, scene);
  frames = conv1_(frames, scene, dtype_);
  frames = norm2_(frames, latent, scene);
  frames = conv2_(frames, scene, dtype_);
  return {ops::add(frames.data, wider_ ? shortcut_(x, scene, dtype_).data : x.data), x.height,
          x.begin};
}

Frames doubled_frames(const Frames& x) {
  const int64_t frames = x.data.size(0);
  if (frames == 1) return x;
  std::vector<Tensor> parts;
  for (int64_t t = 0; t < frames; ++t)
    for (int i = 0; i < (t == 0 && frames % 2 == 1 ? 1 : 2); ++i)
      parts.push_back(rows(x.data, t, t + 1));
  return {ops::concat_rows(parts), x.height, x.begin};
}

Frames halved_frames(const Frames& x) {
  const int64_t frames = x.data.size(0), first = frames % 2;
  std::vector<Tensor> parts;
  if (first) parts.push_back(rows(x.data, 0, 1));
  for (int64_t t = first; t + 1 < frames; t += 2) {
    const Tensor a = rows(x.data, t, t + 1), b = rows(x.data, t + 1, t + 2);
    parts.push_back(ops::blend(a, 0.5f, b, 0.5f));
  }
  return {ops::concat_rows(parts), x.height, x.begin};
}

}  // namespace tessera::models

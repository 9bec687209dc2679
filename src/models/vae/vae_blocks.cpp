#include "models/vae/vae_blocks.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "ops/elementwise.h"
#include "ops/permute.h"
#include "tensor/scope.h"

namespace tessera::models {

using nn::Plane;
using tensor::DType;
using tensor::Tensor;

nn::GroupNorm VaeLoader::norm(const std::string& name, int64_t channels) const {
  return {groups, weights.vector(name + ".weight", channels),
          weights.vector(name + ".bias", channels)};
}

ops::ConvWeight VaeLoader::conv(const std::string& name, int64_t out, int64_t in,
                                int64_t size) const {
  return weights.conv(name + ".weight", name + ".bias", {out, in, size, size}, dtype);
}

VaeResnet::VaeResnet(const VaeLoader& load, const std::string& name, int64_t in, int64_t out)
    : norm1_(load.norm(name + ".norm1", in)),
      norm2_(load.norm(name + ".norm2", out)),
      conv1_(load.conv(name + ".conv1", out, in, 3)),
      conv2_(load.conv(name + ".conv2", out, out, 3)),
      narrows_(out < in) {
  if (in != out) shortcut_ = load.conv(name + ".conv_shortcut", out, in, 1);
}

Plane VaeResnet::operator()(Plane x, nn::Spatial& spatial) const {
  ops::Conv2dOptions options = same_size();
  options.scale_shift = spatial.scale_shift(norm1_, x);
  options.silu = true;
  const Plane h = spatial.conv(conv1_, x, options);
  if (shortcut_)
    x = narrows_ ? spatial.narrow(shortcut_, std::move(x)) : spatial.conv(shortcut_, x, {});
  options.scale_shift = spatial.scale_shift(norm2_, h);
  options.residual = std::move(x.data);
  options.into_residual = true;
  return spatial.conv(conv2_, h, options);
}

VaeAttention::VaeAttention(const VaeLoader& load, const std::string& name, int64_t channels)
    : norm_(load.norm(name + ".group_norm", channels)) {
  // Folders from before diffusers 0.17 have other names.
  const bool old_names = load.weights.has(name + ".query.weight");
  auto linear = [&](const char* new_name, const char* old_name) {
    return nn::Linear(load.weights, name + (old_names ? old_name : new_name), channels, channels,
                      load.dtype);
  };
  q_ = linear(".to_q", ".query");
  k_ = linear(".to_k", ".key");
  v_ = linear(".to_v", ".value");
  out_ = linear(".to_out.0", ".proj_attn");
}

Plane VaeAttention::operator()(const Plane& x, nn::Spatial& spatial) const {
  const int64_t channels = x.data.size(3), pixels = x.data.elements() / channels;
  const Tensor tokens =
      ops::channel_affine(x.data, spatial.scale_shift(norm_, x), false).reshape({pixels, channels});
  const Tensor attention = spatial.attend(x, q_(tokens), k_(tokens), v_(tokens));
  ops::MatmulOptions options;
  options.residual = x.data.reshape({pixels, channels});
  return {out_(attention, options).reshape(x.data.shape()), x.height, x.begin};
}

Tensor channels_last(const Tensor& x, DType dtype) {
  const int64_t sizes[] = {x.size(0), x.size(1), x.size(2) * x.size(3)};
  const int order[] = {0, 2, 1};
  const tensor::Shape shape{x.size(0), x.size(2), x.size(3), x.size(1)};
  return ops::cast(ops::permute(x.contiguous(), sizes, order, shape), dtype);
}

Plane lines_of(const Tensor& images, DType dtype, nn::Spatial& spatial) {
  const nn::Range lines = spatial.lines(images.size(2));
  return {channels_last(images.slice(2, lines.begin, lines.end), dtype), images.size(2),
          lines.begin};
}

Tensor clamped_logvar(const Tensor& logvar) {
  if (logvar.is_meta()) return logvar;
  std::vector<float> values = logvar.to_floats();
  for (float& value : values) value = std::clamp(value, -30.0f, 20.0f);
  return Tensor::from(std::span<const float>(values), logvar.shape()).to(logvar.device());
}

VaeMoments scaled_moments(const VaeMoments& moments, double shift, double by) {
  if (moments.mean.is_meta()) return moments;
  std::vector<float> mean = moments.mean.to_floats(), logvar = moments.logvar.to_floats();
  for (float& value : mean) value = static_cast<float>((double(value) - shift) * by);
  for (float& value : logvar) value = static_cast<float>(double(value) + 2 * std::log(by));
  const auto like = [](const std::vector<float>& values, const Tensor& x) {
    return Tensor::from(std::span<const float>(values), x.shape()).to(x.device());
  };
  return {like(mean, moments.mean), like(logvar, moments.logvar)};
}

Tensor channels_first(const Tensor& any) {
  const Tensor x = ops::cast(any, DType::f32);
  const int64_t sizes[] = {x.size(0), x.size(1) * x.size(2), x.size(3)};
  const int order[] = {0, 2, 1};
  const tensor::Shape shape{x.size(0), x.size(3), x.size(1), x.size(2)};
  return ops::permute(x.contiguous(), sizes, order, shape);
}

}  // namespace tessera::models

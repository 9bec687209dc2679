#pragma once

#include <string>

#include "models/vae/vae.h"
#include "nn/linear.h"
#include "nn/spatial.h"
#include "nn/weights.h"

namespace tessera::models {

/// Loads the parts of a VAE with diffusers names.
struct VaeLoader {
  const nn::Weights& weights;
  tensor::DType dtype;
  int groups;

  nn::GroupNorm norm(const std::string& name, int64_t channels) const;
  ops::ConvWeight conv(const std::string& name, int64_t out, int64_t in, int64_t size) const;
};

/// 3 x 3 filters that preserve the size of an image.
inline ops::Conv2dOptions same_size() {
  return {.pad_top = 1, .pad_bottom = 1, .pad_left = 1, .pad_right = 1};
}

/// x + conv(silu(norm(conv(silu(norm(x)))))), with a 1 x 1 shortcut where the width changes (He et
/// al. 2016). Norms are fused into the convolutions.
class VaeResnet {
 public:
  VaeResnet(const VaeLoader& load, const std::string& name, int64_t in, int64_t out);
  /// Consumes x: the elements may be overwritten.
  nn::Plane operator()(nn::Plane x, nn::Spatial& spatial) const;

 private:
  nn::GroupNorm norm1_, norm2_;
  ops::ConvWeight conv1_, conv2_, shortcut_;
  bool narrows_;
};

/// x + out(attention(norm(x))) with a single head over all pixels of an image.
class VaeAttention {
 public:
  VaeAttention(const VaeLoader& load, const std::string& name, int64_t channels);
  nn::Plane operator()(const nn::Plane& x, nn::Spatial& spatial) const;

 private:
  nn::GroupNorm norm_;
  nn::Linear q_, k_, v_, out_;
};

/// [batch, channels, h, w] f32 -> [batch, h, w, channels] of `dtype`.
tensor::Tensor channels_last(const tensor::Tensor& x, tensor::DType dtype);
/// This rank's lines of images [batch, channels, height, width] f32.
nn::Plane lines_of(const tensor::Tensor& images, tensor::DType dtype, nn::Spatial& spatial);
/// Clamps log variances to [-30, 20], as diffusers does.
tensor::Tensor clamped_logvar(const tensor::Tensor& logvar);
/// Moments of (x - shift) * by, from moments of x.
VaeMoments scaled_moments(const VaeMoments& moments, double shift, double by);
/// [batch, h, w, channels] of any float dtype -> [batch, channels, h, w] f32.
tensor::Tensor channels_first(const tensor::Tensor& x);

}  // namespace tessera::models

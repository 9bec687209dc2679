#pragma once

#include "ops/conv.h"
#include "tensor/tensor.h"

namespace tessera::nn {

/// Some lines of a batch of images, channels last: data [batch, lines, width, channels] are lines
/// [begin, begin + lines) of `height`.
struct Plane {
  tensor::Tensor data;
  int64_t height = 0, begin = 0;
};

/// A group norm's parameters.
struct GroupNorm {
  int groups = 32;
  tensor::Tensor weight, bias;  ///< f32 [channels]
  float eps = 1e-6f;
};

/// What a VAE asks of its surroundings: everything in which lines of an image meet. Whoever
/// implements it may hold few lines of an image, or none.
class Spatial {
 public:
  virtual ~Spatial() = default;
  /// ops::conv2d over whole images: its filter needs the lines beside mine, its padding stands at
  /// the image's edge. options.residual has the lines of the result.
  virtual Plane conv(const ops::ConvWeight& weight, const Plane& x,
                     const ops::Conv2dOptions& options) = 0;
  /// ops::channel_moments over whole images -> f32 [batch, 2, channels], the same on every rank.
  virtual tensor::Tensor moments(const Plane& x) = 0;
  /// Attention of every pixel of x over every pixel of its image, one head: q, k, v and the
  /// result [batch * lines * width, channels].
  virtual tensor::Tensor attend(const Plane& x, const tensor::Tensor& q, const tensor::Tensor& k,
                                const tensor::Tensor& v) = 0;

  /// The scale and shift of a group norm of x, for a convolution or ops::channel_affine.
  tensor::Tensor scale_shift(const GroupNorm& norm, const Plane& x) {
    return ops::group_scale_shift(moments(x), norm.groups, norm.weight, norm.bias, norm.eps);
  }
};

}  // namespace tessera::nn

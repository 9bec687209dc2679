#pragma once

#include <span>

#include "nn/segments.h"
#include "ops/conv.h"
#include "tensor/tensor.h"

namespace tessera::nn {

/// Some lines of a batch of images or of the frames of a video, channels last: data [batch, lines,
/// width, channels] are lines [begin, begin + lines) of `height`. `before`: the same lines of the
/// frames before, for filters over several frames; else undefined.
struct Plane {
  tensor::Tensor data;
  int64_t height = 0, begin = 0;
  tensor::Tensor before{};
};

/// A group norm's parameters.
struct GroupNorm {
  int groups = 32;
  tensor::Tensor weight, bias;  ///< f32 [channels]
  float eps = 1e-6f;
};

/// The environment of a VAE: all operations across lines of an image. An implementation may hold
/// few lines of an image, or none.
class Spatial {
 public:
  virtual ~Spatial() = default;
  /// The own lines of images with this height, at the input of a network.
  virtual Range lines(int64_t height) = 0;
  /// The whole images of x, on the first rank; elsewhere without lines.
  virtual tensor::Tensor join(const Plane& x) = 0;
  /// ops::conv2d over whole images, with neighbouring lines of other ranks and padding at
  /// the image's edge. The k-th of n filters reads frame t + k: their sum is frame t, and
  /// the result has n - 1 frames fewer than x with `before`. options.residual has the
  /// frames and lines of the result; without a residual, partial sums of several filters
  /// are f32.
  virtual Plane convolve(std::span<const ops::ConvWeight> taps, const Plane& x,
                         const ops::Conv2dOptions& options) = 0;
  /// conv() with a one-pixel filter and fewer output channels. Consumes x: the result may use its
  /// memory.
  virtual Plane narrow(const ops::ConvWeight& weight, Plane x) = 0;
  /// ops::channel_moments over whole images -> f32 [batch, 2, channels], the same on every rank;
  /// `together`: over the whole batch -> f32 [1, 2, channels].
  virtual tensor::Tensor moments(const Plane& x, bool together = false) = 0;
  /// Attention of every pixel of x over every pixel of its image, one head: q, k, v and the
  /// result [batch * lines * width, channels].
  virtual tensor::Tensor attend(const Plane& x, const tensor::Tensor& q, const tensor::Tensor& k,
                                const tensor::Tensor& v) = 0;

  /// With a single filter.
  Plane conv(const ops::ConvWeight& weight, const Plane& x, const ops::Conv2dOptions& options) {
    return convolve({&weight, 1}, x, options);
  }
  /// The scale and shift of a group norm of x, for a convolution or ops::channel_affine.
  tensor::Tensor scale_shift(const GroupNorm& norm, const Plane& x, bool together = false) {
    return ops::group_scale_shift(moments(x, together), norm.groups, norm.weight, norm.bias,
                                  norm.eps);
  }
};

}  // namespace tessera::nn

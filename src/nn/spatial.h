#pragma once

#include <span>

#include "nn/segments.h"
#include "ops/conv.h"
#include "tensor/tensor.h"

namespace tessera::nn {

/// Some lines of a batch of images or of the frames of a video, channels last: data [batch, lines,
/// width, channels] are lines [begin, begin + lines) of `height`. `before`: those lines of the
/// frames before the first one, for filters that read several; none: undefined.
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

/// What a VAE asks of its surroundings: everything in which lines of an image meet. Whoever
/// implements it may hold few lines of an image, or none.
class Spatial {
 public:
  virtual ~Spatial() = default;
  /// The lines of images of this height that are mine where a network begins.
  virtual Range lines(int64_t height) = 0;
  /// The whole images of x, on the first rank; elsewhere without lines.
  virtual tensor::Tensor join(const Plane& x) = 0;
  /// ops::conv2d over whole images: its filter needs the lines beside mine, its padding stands at
  /// the image's edge. Of n filters of one size the k-th reads frame t + k: the sum of what they
  /// make is frame t, and there are n - 1 frames less than of x, `before` counted. options.residual
  /// has the frames and lines of the result; without it sums of several filters are f32 until they
  /// are whole.
  virtual Plane convolve(std::span<const ops::ConvWeight> taps, const Plane& x,
                         const ops::Conv2dOptions& options) = 0;
  /// conv() with a filter of one pixel that makes fewer channels. Consumes x: the result may lie in
  /// its memory.
  virtual Plane narrow(const ops::ConvWeight& weight, Plane x) = 0;
  /// ops::channel_moments over whole images -> f32 [batch, 2, channels], the same on every rank;
  /// `together`: over all of the batch -> f32 [1, 2, channels].
  virtual tensor::Tensor moments(const Plane& x, bool together = false) = 0;
  /// Attention of every pixel of x over every pixel of its image, one head: q, k, v and the
  /// result [batch * lines * width, channels].
  virtual tensor::Tensor attend(const Plane& x, const tensor::Tensor& q, const tensor::Tensor& k,
                                const tensor::Tensor& v) = 0;

  /// With one filter.
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

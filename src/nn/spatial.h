#pragma once

#include "ops/conv.h"
#include "tensor/tensor.h"

namespace tessera::nn {

/// Some lines of a batch of pictures, channels last: data [rows, lines, width, channels] are lines
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

/// What a VAE asks of its surroundings: everything in which lines of a picture meet.
class Spatial {
 public:
  virtual ~Spatial() = default;
  /// 3x3 convolutions need the lines beside mine.
  virtual Plane conv(const ops::ConvWeight& weight, const Plane& x, const ops::Conv2dOptions& options) = 0;
  /// Moments are taken over the whole picture.
  virtual Plane group_norm(const GroupNorm& norm, const Plane& x, bool silu) = 0;
  /// Attention of every pixel over every pixel of its picture: q, k, v [rows * lines * width, channels].
  virtual tensor::Tensor attend(const Plane& x, const tensor::Tensor& q, const tensor::Tensor& k,
                                const tensor::Tensor& v) = 0;
};

}  // namespace tessera::nn

#pragma once

#include "nn/spatial.h"

namespace tessera::nn {

/// Images that are whole on this rank.
class LocalSpatial : public Spatial {
 public:
  Range lines(int64_t height) override { return {0, height}; }
  tensor::Tensor join(const Plane& x) override { return x.data; }
  Plane convolve(std::span<const ops::ConvWeight> taps, const Plane& x,
                 const ops::Conv2dOptions& options) override;
  tensor::Tensor moments(const Plane& x, bool together = false) override;
  tensor::Tensor attend(const Plane& x, const tensor::Tensor& q, const tensor::Tensor& k,
                        const tensor::Tensor& v) override;
};

}  // namespace tessera::nn

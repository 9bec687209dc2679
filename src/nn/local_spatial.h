#pragma once

#include "nn/spatial.h"

namespace tessera::nn {

/// Images that are whole on this rank.
class LocalSpatial : public Spatial {
 public:
  Plane conv(const ops::ConvWeight& weight, const Plane& x,
             const ops::Conv2dOptions& options) override;
  tensor::Tensor moments(const Plane& x) override;
  tensor::Tensor attend(const Plane& x, const tensor::Tensor& q, const tensor::Tensor& k,
                        const tensor::Tensor& v) override;
};

}  // namespace tessera::nn

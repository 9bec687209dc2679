#pragma once

#include "nn/spatial.h"

namespace tessera::nn {

/// Whole images on this rank. With a `chunk`, temporary memory of a filter covers `chunk`
/// lines at a time: joined frames and their sums in f32, or the result of narrow() before the
/// write over its source (xDiT's PatchVAE, --vae-chunk). 0: all lines. Results are
/// bit-identical.
class LocalSpatial : public Spatial {
 public:
  explicit LocalSpatial(int64_t chunk = 0) : chunk_(chunk) {}
  Range lines(int64_t height) override { return {0, height}; }
  tensor::Tensor join(const Plane& x) override { return x.data; }
  Plane convolve(std::span<const ops::ConvWeight> taps, const Plane& x,
                 const ops::Conv2dOptions& options) override;
  Plane narrow(const ops::ConvWeight& weight, Plane x) override;
  tensor::Tensor moments(const Plane& x, bool together = false) override;
  tensor::Tensor attend(const Plane& x, const tensor::Tensor& q, const tensor::Tensor& k,
                        const tensor::Tensor& v) override;

 private:
  int64_t chunk_;
};

}  // namespace tessera::nn

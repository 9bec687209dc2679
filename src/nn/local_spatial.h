#pragma once

#include "nn/spatial.h"

namespace tessera::nn {

/// Images that are whole on this rank. With a `chunk` what a filter needs beside what it reads and
/// gives is so many lines of it at a time: the frames of several joined and their sums in f32, or
/// what narrow() makes before it is written over what it was made of (xDiT's PatchVAE,
/// --vae-chunk). 0: of all lines. The result is the same to the bit.
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

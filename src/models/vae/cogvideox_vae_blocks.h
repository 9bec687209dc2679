#pragma once

#include <map>
#include <string>
#include <vector>

#include "nn/spatial.h"
#include "nn/weights.h"

namespace tessera::models {

/// Frames of one video, channels last: [frames, lines, width, channels].
using Frames = nn::Plane;

/// What surrounds the blocks while a video is decoded in pieces: the last frames that each causal
/// filter saw, by the filter, and the lines of other ranks.
struct FrameScene {
  nn::Spatial& spatial;
  std::map<const void*, tensor::Tensor> seen{};
};

/// A filter over this frame and those before it; outside an image are zeros, before the first
/// frame stands the first. CausalConv3d of CogVideoX (Yang et al. 2024, section 2.1).
class CausalConv {
 public:
  CausalConv() = default;
  /// `<name>.weight` [out, in, size, size, size]; `.conv` before `.weight` as published.
  CausalConv(const nn::Weights& weights, const std::string& name, int64_t out, int64_t in,
             int64_t size, tensor::DType dtype);
  /// x of any number of frames -> as many; `out` is the dtype of the result.
  Frames operator()(const Frames& x, FrameScene& scene, tensor::DType out) const;

 private:
  std::vector<ops::ConvWeight> taps_;  // one image filter for each frame it reads, oldest first
  int pad_ = 0;
};

/// A group norm over all frames of a piece, then SiLU; with a latent, scaled and shifted by filters
/// of it.
class FrameNorm {
 public:
  FrameNorm() = default;
  /// `latent` channels, 0 for a plain group norm.
  FrameNorm(const nn::Weights& weights, const std::string& name, int groups, int64_t channels,
            int64_t latent, tensor::DType dtype);
  Frames operator()(const Frames& x, const Frames& latent, FrameScene& scene) const;

 private:
  nn::GroupNorm norm_;
  CausalConv gain_, bias_;
  bool by_latent_ = false;
};

/// x + conv(norm(conv(norm(x)))), x through a 1 x 1 x 1 filter where the width changes.
class FrameResnet {
 public:
  FrameResnet(const nn::Weights& weights, const std::string& name, int groups, int64_t in,
              int64_t out, int64_t latent, tensor::DType dtype);
  Frames operator()(const Frames& x, const Frames& latent, FrameScene& scene) const;

 private:
  FrameNorm norm1_, norm2_;
  CausalConv conv1_, conv2_, shortcut_;
  bool wider_ = false;
  tensor::DType dtype_;
};

/// Each frame twice, but the first of an odd number above one once; a single frame stays single.
Frames doubled_frames(const Frames& x);
/// Means of pairs of frames; the first of an odd number stays as it is.
Frames halved_frames(const Frames& x);

}  // namespace tessera::models

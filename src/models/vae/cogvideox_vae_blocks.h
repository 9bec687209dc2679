#pragma once

#include <map>
#include <string>
#include <vector>

#include "nn/spatial.h"
#include "nn/weights.h"

namespace tessera::models {

/// Frames of a video, channels last: [frames, lines, width, channels].
using Frames = nn::Plane;

/// State between pieces of a video: the last frames seen by each causal filter, by filter, and the
/// lines of other ranks.
struct FrameScene {
  nn::Spatial& spatial;
  std::map<const void*, tensor::Tensor> earlier_frames{};
};

/// A convolution over the current and earlier frames; zero padding in space, and the first frame
/// repeated before the start. CausalConv3d of CogVideoX (Yang et al. 2024, section 2.1).
class CausalConv {
 public:
  CausalConv() = default;
  /// `<name>.weight` [out, in, size, size, size]; published files have `.conv` before `.weight`.
  CausalConv(const nn::Weights& weights, const std::string& name, int64_t out, int64_t in,
             int64_t size, tensor::DType dtype);
  /// Returns as many frames as x; `out` is the dtype of the result.
  Frames operator()(const Frames& x, FrameScene& scene, tensor::DType out) const;

 private:
  ops::FrameFilters taps_;
  int pad_ = 0;
};

/// A group norm over all frames of a piece, then SiLU; with a latent, scaled and shifted by
/// convolutions of the latent.
class FrameNorm {
 public:
  FrameNorm() = default;
  /// `latent`: channels of the latent; 0 for a plain group norm.
  FrameNorm(const nn::Weights& weights, const std::string& name, int groups, int64_t channels,
            int64_t latent, tensor::DType dtype);
  Frames operator()(const Frames& x, const Frames& latent, FrameScene& scene) const;

 private:
  nn::GroupNorm norm_;
  CausalConv gain_, bias_;
  bool by_latent_ = false;
};

/// x + conv(norm(conv(norm(x)))), with a 1 x 1 x 1 shortcut where the width changes.
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

/// Repeats each frame; the first of an odd number above one is not repeated, nor is a single frame.
Frames doubled_frames(const Frames& x);
/// Averages pairs of frames; the first of an odd number is kept.
Frames halved_frames(const Frames& x);

}  // namespace tessera::models

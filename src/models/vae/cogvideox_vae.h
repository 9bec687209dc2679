#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "models/vae/cogvideox_vae_blocks.h"
#include "models/vae/vae_blocks.h"

namespace tessera::models {

/// An AutoencoderKLCogVideoX's sizes, by the names of its config.json.
struct CogVideoXVaeConfig {
  int64_t in_channels = 3, out_channels = 3, latent_channels = 16, layers_per_block = 3;
  int64_t norm_num_groups = 32, temporal_compression_ratio = 4;
  int64_t sample_height = 480, sample_width = 720;
  std::vector<int64_t> block_out_channels{128, 256, 256, 512};
  double scaling_factor = 1.15258426;
};
/// Throws Error(model) naming `where`, the key, its value and what fits.
CogVideoXVaeConfig parse_cogvideox_vae_config(const base::Json& config, const std::string& where);

/// How diffusers cuts latents with enable_tiling: tiles of half the trained size, or of `pixels`
/// squared if above 0; a sixth of the height and a fifth of the width overlap.
Tiling tiling_of(const CogVideoXVaeConfig& config, int64_t pixels = 0);

/// The decoder of CogVideoX's causal video autoencoder (Yang et al. 2024, section 2.1).
class CogVideoXVae : public VaeDecoder {
 public:
  CogVideoXVae(const CogVideoXVaeConfig& config, const nn::Weights& weights, tensor::DType dtype);

  /// latents / scaling_factor.
  tensor::Tensor unscale(const tensor::Tensor& latents) const override;
  /// Two latent frames at a time, an odd one with the first two.
  tensor::Tensor decode(const tensor::Tensor& latents, nn::Spatial& spatial,
                        const VaeWatch& watch = {}) const override;

 private:
  struct Level {
    std::vector<FrameResnet> resnets;
    ops::ConvWeight upsampler;  ///< null on the last level
    bool more_frames = false;
  };
  Frames decode_piece(const Frames& latent, FrameScene& scene) const;

  CogVideoXVaeConfig config_;
  tensor::DType dtype_;
  CausalConv conv_in_, conv_out_;
  std::vector<FrameResnet> middle_;
  std::vector<Level> levels_;
  FrameNorm norm_out_;
};

/// The encoder of the same.
class CogVideoXVaeEncoder : public VaeEncoder {
 public:
  CogVideoXVaeEncoder(const CogVideoXVaeConfig& config, const nn::Weights& weights,
                      tensor::DType dtype);

  /// Eight frames at a time, odd ones with the first.
  VaeMoments encode(const tensor::Tensor& video, nn::Spatial& spatial,
                    const VaeWatch& watch = {}) const override;
  /// moments * scaling_factor.
  VaeMoments scale(const VaeMoments& moments) const override {
    return scaled_moments(moments, 0, config_.scaling_factor);
  }

 private:
  struct Level {
    std::vector<FrameResnet> resnets;
    ops::ConvWeight downsampler;  ///< null on the last level
    bool fewer_frames = false;
  };
  Frames encode_piece(const Frames& video, FrameScene& scene) const;

  CogVideoXVaeConfig config_;
  tensor::DType dtype_;
  CausalConv conv_in_, conv_out_;
  std::vector<FrameResnet> middle_;
  std::vector<Level> levels_;
  FrameNorm norm_out_;
};

}  // namespace tessera::models

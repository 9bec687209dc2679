#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "models/vae/cogvideox_vae_blocks.h"
#include "models/vae/vae_blocks.h"

namespace tessera::models {

/// Sizes of an AutoencoderKLCogVideoX, named as in config.json.
struct CogVideoXVaeConfig {
  int64_t in_channels = 3, out_channels = 3, latent_channels = 16, layers_per_block = 3;
  int64_t norm_num_groups = 32, temporal_compression_ratio = 4;
  int64_t sample_height = 480, sample_width = 720;
  std::vector<int64_t> block_out_channels{128, 256, 256, 512};
  double scaling_factor = 1.15258426;
};
/// Throws Error(model) naming `where`, the key, its value and the allowed values.
CogVideoXVaeConfig parse_cogvideox_vae_config(const base::Json& config, const std::string& where);

/// Tiling of diffusers' enable_tiling: tiles of half the trained size, or of `pixels` squared if
/// above 0; the overlap is a sixth of the height and a fifth of the width.
Tiling tiling_of(const CogVideoXVaeConfig& config, int64_t pixels = 0);

/// The decoder of CogVideoX's causal video autoencoder (Yang et al. 2024, section 2.1).
class CogVideoXVae : public VaeDecoder {
 public:
  CogVideoXVae(const CogVideoXVaeConfig& config, const nn::Weights& weights, tensor::DType dtype);

  /// latents / scaling_factor.
  tensor::Tensor unscale(const tensor::Tensor& latents) const override;
  /// Decodes two latent frames at a time; an odd frame joins the first two.
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

/// The matching encoder.
class CogVideoXVaeEncoder : public VaeEncoder {
 public:
  CogVideoXVaeEncoder(const CogVideoXVaeConfig& config, const nn::Weights& weights,
                      tensor::DType dtype);

  /// Encodes eight frames at a time; remaining frames join the first eight.
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

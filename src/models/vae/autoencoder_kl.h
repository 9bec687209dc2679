#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "models/vae/vae.h"
#include "models/vae/vae_blocks.h"

namespace tessera::models {

/// Sizes of an AutoencoderKL, named as in config.json; missing keys have the defaults of the
/// diffusers class.
struct AutoencoderKLConfig {
  int64_t in_channels = 3, out_channels = 3, latent_channels = 4, layers_per_block = 1;
  int64_t norm_num_groups = 32, sample_size = 32;
  std::vector<int64_t> block_out_channels{64};
  double scaling_factor = 0.18215, shift_factor = 0;
  bool use_quant_conv = true, use_post_quant_conv = true, mid_block_add_attention = true;
  /// FLUX.2: latents are normalised by stored statistics for each channel and position in a 2 x 2
  /// patch, instead of by a factor.
  bool batch_norm = false;
  double batch_norm_eps = 1e-4;
  std::vector<int64_t> decoder_block_out_channels{};  ///< empty: block_out_channels
};
/// Throws Error(model) naming `where`, the key, its value and the allowed values.
AutoencoderKLConfig parse_autoencoder_kl_config(const base::Json& config, const std::string& where);
/// Same for an AutoencoderKLFlux2.
AutoencoderKLConfig parse_flux2_vae_config(const base::Json& config, const std::string& where);

/// Mean and standard deviation of latents by channel and position in a 2 x 2 patch; empty: none.
struct LatentStatistics {
  std::vector<float> mean, deviation;  ///< index c * 4 + y * 2 + x of channel c, line y, column x
  /// Loads the statistics of a file ("bn.running_mean", "bn.running_var").
  static LatentStatistics load(const AutoencoderKLConfig& config, const nn::Weights& weights);
  /// Index of the statistics for an element of latents [batch, channels, height, width].
  static size_t place(int64_t element, const tensor::Shape& latents);
};

/// Tiling of diffusers' enable_tiling: tiles of sample_size pixels, or of `pixels` if above 0, with
/// an overlap of a quarter.
Tiling tiling_of(const AutoencoderKLConfig& config, int64_t pixels = 0);

/// The decoder of a variational autoencoder in the diffusers layout (Rombach et al. 2022).
class AutoencoderKL : public VaeDecoder {
 public:
  AutoencoderKL(const AutoencoderKLConfig& config, const nn::Weights& weights, tensor::DType dtype);

  /// latents / scaling_factor + shift_factor; for FLUX.2 latents * deviation + mean.
  tensor::Tensor unscale(const tensor::Tensor& latents) const override;
  /// Each level of block_out_channels after the first doubles the size. The trace gets "conv_in",
  /// "mid_block", "up_block.N".
  tensor::Tensor decode(const tensor::Tensor& latents, nn::Spatial& spatial,
                        const VaeWatch& watch = {}) const override;

 private:
  struct Level {
    std::vector<VaeResnet> resnets;
    ops::ConvWeight upsampler;  ///< null on the last level
  };

  AutoencoderKLConfig config_;
  tensor::DType dtype_;
  ops::ConvWeight post_quant_, conv_in_, conv_out_;
  std::vector<VaeResnet> middle_;
  std::vector<VaeAttention> middle_attention_;
  std::vector<Level> levels_;
  nn::GroupNorm norm_out_;
  LatentStatistics statistics_;
};

/// The matching encoder.
class AutoencoderKLEncoder : public VaeEncoder {
 public:
  AutoencoderKLEncoder(const AutoencoderKLConfig& config, const nn::Weights& weights,
                       tensor::DType dtype);

  /// The trace gets "conv_in", "down_block.N", "mid_block".
  VaeMoments encode(const tensor::Tensor& images, nn::Spatial& spatial,
                    const VaeWatch& watch = {}) const override;
  /// (moments - shift_factor) * scaling_factor; for FLUX.2 (moments - mean) / deviation.
  VaeMoments scale(const VaeMoments& moments) const override;

 private:
  struct Level {
    std::vector<VaeResnet> resnets;
    ops::ConvWeight downsampler;  ///< null on the last level
  };

  AutoencoderKLConfig config_;
  tensor::DType dtype_;
  ops::ConvWeight conv_in_, conv_out_, quant_;
  std::vector<VaeResnet> middle_;
  std::vector<VaeAttention> middle_attention_;
  std::vector<Level> levels_;
  nn::GroupNorm norm_out_;
  LatentStatistics statistics_;
};

}  // namespace tessera::models

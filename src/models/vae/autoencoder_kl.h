#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "nn/linear.h"
#include "nn/spatial.h"
#include "nn/weights.h"

namespace tessera::models {

/// An AutoencoderKL's sizes, by the names of its config.json; what is missing there has the value of
/// the diffusers class.
struct AutoencoderKLConfig {
  int64_t in_channels = 3, out_channels = 3, latent_channels = 4, layers_per_block = 1;
  int64_t norm_num_groups = 32;
  std::vector<int64_t> block_out_channels{64};
  double scaling_factor = 0.18215, shift_factor = 0;
  bool use_quant_conv = true, use_post_quant_conv = true, mid_block_add_attention = true;
};
/// Throws Error(model) naming `where`, the key, its value and what fits.
AutoencoderKLConfig parse_autoencoder_kl_config(const base::Json& config, const std::string& where);

/// The decoder of a variational autoencoder in the diffusers layout (Rombach et al. 2022).
class AutoencoderKL {
 public:
  /// Called with "conv_in", "mid_block", "up_blocks.N", each [rows, channels, height, width].
  using Trace = std::function<void(const std::string& name, const tensor::Tensor& x)>;

  AutoencoderKL(const AutoencoderKLConfig& config, const nn::Weights& weights, tensor::DType dtype);

  /// latents / scaling_factor + shift_factor.
  tensor::Tensor unscale(const tensor::Tensor& latents) const;
  /// latents f32 [rows, latent_channels, h, w], unscaled -> pictures f32 [rows, 3, 8h, 8w] in about
  /// [-1, 1] (for four levels).
  tensor::Tensor decode(const tensor::Tensor& latents, nn::Spatial& spatial,
                        const Trace& trace = {}) const;

 private:
  struct Resnet {
    nn::GroupNorm norm1, norm2;
    ops::ConvWeight conv1, conv2, shortcut;
  };
  struct Attention {
    nn::GroupNorm norm;
    nn::Linear q, k, v, out;
  };
  struct Level {
    std::vector<Resnet> resnets;
    ops::ConvWeight upsampler;  ///< null on the last level
  };
  nn::GroupNorm load_norm(const nn::Weights& weights, const std::string& name, int64_t channels) const;
  ops::ConvWeight load_conv(const nn::Weights& weights, const std::string& name, int64_t out, int64_t in,
                            int64_t size) const;
  Resnet load_resnet(const nn::Weights& weights, const std::string& name, int64_t in, int64_t out) const;
  Attention load_attention(const nn::Weights& weights, const std::string& name, int64_t channels) const;
  nn::Plane run(const Resnet& resnet, const nn::Plane& x, nn::Spatial& spatial) const;
  nn::Plane run(const Attention& attention, const nn::Plane& x, nn::Spatial& spatial) const;

  AutoencoderKLConfig config_;
  tensor::DType dtype_;
  ops::ConvWeight post_quant_, conv_in_, conv_out_;
  std::vector<Resnet> middle_;
  std::vector<Attention> middle_attention_;
  std::vector<Level> levels_;
  nn::GroupNorm norm_out_;
};

}  // namespace tessera::models

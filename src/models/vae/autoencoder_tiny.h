#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "models/vae/vae_blocks.h"

namespace tessera::models {

/// These are the sizes of an AutoencoderTiny, by the names of config.json.
struct AutoencoderTinyConfig {
  int64_t in_channels = 3, out_channels = 3, latent_channels = 4;
  std::vector<int64_t> encoder_block_out_channels{64, 64, 64, 64};
  std::vector<int64_t> decoder_block_out_channels{64, 64, 64, 64};
  std::vector<int64_t> num_encoder_blocks{1, 3, 3, 3}, num_decoder_blocks{3, 3, 3, 1};
  double scaling_factor = 1, shift_factor = 0;
};
/// Throws Error(model) with `where`, the key, the value and the expected values.
AutoencoderTinyConfig parse_autoencoder_tiny_config(const base::Json& config,
                                                    const std::string& where);
/// Returns tiles of 512 pixels, or of `pixels` if above 0; an eighth of a tile overlaps.
Tiling tiling_of(const AutoencoderTinyConfig& config, int64_t pixels = 0);

/// A block of three filters: relu(x + conv(relu(conv(relu(conv(x)))))).
class TinyBlock {
 public:
  TinyBlock(const VaeLoader& load, const std::string& name, int64_t channels);
  nn::Plane operator()(const nn::Plane& x, nn::Spatial& spatial) const;

 private:
  ops::ConvWeight conv_[3];
};

/// The decoder of TAESD and its relatives for other latents (Bohan 2023), as diffusers holds it.
class AutoencoderTiny : public VaeDecoder {
 public:
  AutoencoderTiny(const AutoencoderTinyConfig& config, const nn::Weights& weights,
                  tensor::DType dtype);
  /// latents / scaling_factor + shift_factor.
  tensor::Tensor unscale(const tensor::Tensor& latents) const override;
  /// Latents are bounded softly by 3. The trace gets "level.N".
  tensor::Tensor decode(const tensor::Tensor& latents, nn::Spatial& spatial,
                        const VaeWatch& watch = {}) const override;

 private:
  struct Level {
    std::vector<TinyBlock> blocks;
    ops::ConvWeight out;  ///< doubles the size on all levels but the last
  };
  AutoencoderTinyConfig config_;
  tensor::DType dtype_;
  ops::ConvWeight conv_in_;
  std::vector<Level> levels_;
};

/// The encoder of an AutoencoderTiny returns the mean as the latent, and draws nothing.
class AutoencoderTinyEncoder : public VaeEncoder {
 public:
  AutoencoderTinyEncoder(const AutoencoderTinyConfig& config, const nn::Weights& weights,
                         tensor::DType dtype);
  /// The trace gets "level.N".
  VaeMoments encode(const tensor::Tensor& images, nn::Spatial& spatial,
                    const VaeWatch& watch = {}) const override;
  /// (moments - shift_factor) * scaling_factor.
  VaeMoments scale(const VaeMoments& moments) const override;

 private:
  struct Level {
    ops::ConvWeight in;  ///< halves the size on all levels but the first
    std::vector<TinyBlock> blocks;
  };
  AutoencoderTinyConfig config_;
  tensor::DType dtype_;
  std::vector<Level> levels_;
  ops::ConvWeight conv_out_;
};

}  // namespace tessera::models

#pragma once

#include <functional>
#include <memory>
#include <string>

#include "models/vae/tiling.h"
#include "nn/spatial.h"
#include "nn/weights.h"

namespace tessera::models {

/// Observers of a VAE's work; either may be empty.
struct VaeWatch {
  /// Receives a block's name and output [batch, channels, height, width] f32, from image VAEs.
  /// Ranks that share the lines must all set this; only the first gets data.
  std::function<void(const std::string& name, const tensor::Tensor& x)> trace;
  /// Receives the number of finished pieces of frames and the total, from video VAEs.
  std::function<void(int done, int count)> piece;
};

/// Decoder of a variational autoencoder for images [batch, 3, H, W] or videos [batch, 3, frames, H,
/// W], f32 in about [-1, 1]. Const and thread-safe.
class VaeDecoder {
 public:
  virtual ~VaeDecoder() = default;
  /// Converts latents of a transformer to the scale of decode().
  virtual tensor::Tensor unscale(const tensor::Tensor& latents) const = 0;
  /// latents f32 [batch, latent_channels, h, w], for videos [batch, latent_channels, frames, h, w];
  /// the batch may be 0. If ranks share the lines, the first gets the result, the others an image
  /// without lines. Throws Error(usage) for latents of a wrong shape.
  virtual tensor::Tensor decode(const tensor::Tensor& latents, nn::Spatial& spatial,
                                const VaeWatch& watch = {}) const = 0;
};

/// Distribution of a latent, unscaled: f32 tensors of the latent's shape; logvar is clamped to
/// [-30, 20]. The mean is the mode.
struct VaeMoments {
  tensor::Tensor mean, logvar;
};

/// Encoder of images or videos, f32 in [-1, 1], to latents.
class VaeEncoder {
 public:
  virtual ~VaeEncoder() = default;
  /// Each level but the last halves a side, rounding down. Ranks share lines as in decode(). Throws
  /// Error(usage).
  virtual VaeMoments encode(const tensor::Tensor& images, nn::Spatial& spatial,
                            const VaeWatch& watch = {}) const = 0;
  /// Converts moments of encode() to the transformer's scale: the inverse of unscale().
  virtual VaeMoments scale(const VaeMoments& moments) const = 0;
};

/// Description of a VAE from its configuration.
struct VaeSpec {
  bool video = false;
  int64_t factor = 8;  ///< pixels of a side for one of the latent
  bool draws = true;   ///< latents of images are drawn from moments; false: they are the mean
  /// How diffusers cuts latents with enable_tiling, in tiles of so many pixels; 0: as configured.
  std::function<Tiling(int64_t pixels)> tiling;
  std::function<std::unique_ptr<VaeDecoder>(const nn::Weights&, tensor::DType)> decoder;
  std::function<std::unique_ptr<VaeEncoder>(const nn::Weights&, tensor::DType)> encoder;
};

}  // namespace tessera::models

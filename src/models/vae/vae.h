#pragma once

#include <functional>
#include <memory>
#include <string>

#include "models/vae/tiling.h"
#include "nn/spatial.h"
#include "nn/weights.h"

namespace tessera::models {

/// What one may hear of a VAE's work; either may be empty.
struct VaeWatch {
  /// The name of a block and its output [batch, channels, height, width] f32, of a VAE of images;
  /// ranks that share its lines must all have one, and but for the first hear of no lines.
  std::function<void(const std::string& name, const tensor::Tensor& x)> trace;
  /// After each piece of frames the number done and of all, of a VAE of videos.
  std::function<void(int done, int count)> piece;
};

/// The half of a variational autoencoder that makes images [batch, 3, H, W] or videos
/// [batch, 3, frames, H, W], f32 in about [-1, 1]. Const and thread-safe.
class VaeDecoder {
 public:
  virtual ~VaeDecoder() = default;
  /// Latents as a transformer makes them -> as decode takes them.
  virtual tensor::Tensor unscale(const tensor::Tensor& latents) const = 0;
  /// latents f32 [batch, latent_channels, h, w], of videos [batch, latent_channels, frames, h, w];
  /// the batch may be 0. Where ranks share the lines the first one gets what is made, the others
  /// an image without lines. Throws Error(usage) for latents that do not fit.
  virtual tensor::Tensor decode(const tensor::Tensor& latents, nn::Spatial& spatial,
                                const VaeWatch& watch = {}) const = 0;
};

/// What a latent is drawn from, unscaled: f32 of the latent's shape each; logvar is clamped to
/// [-30, 20]. The mean is the mode.
struct VaeMoments {
  tensor::Tensor mean, logvar;
};

/// The other half: images or videos f32 in [-1, 1] to latents.
class VaeEncoder {
 public:
  virtual ~VaeEncoder() = default;
  /// A side is halved, rounding down, at each level but the last. Ranks get it as above. Throws
  /// Error(usage).
  virtual VaeMoments encode(const tensor::Tensor& images, nn::Spatial& spatial,
                            const VaeWatch& watch = {}) const = 0;
  /// Moments of encode() -> of latents as a transformer makes them: the inverse of unscale().
  virtual VaeMoments scale(const VaeMoments& moments) const = 0;
};

/// What a VAE's configuration describes.
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

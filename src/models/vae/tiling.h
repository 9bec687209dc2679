#pragma once

#include <cstdint>
#include <functional>

#include "tensor/tensor.h"

namespace tessera::models {

/// Tiles of a latent along one side: tile i begins at i * step, and the last ones are smaller.
struct TileSide {
  int64_t size = 0, step = 0;  ///< latent pixels; size - step of a tile lie over the one before it
};
/// How a latent is cut before it is decoded.
struct Tiling {
  TileSide height, width;
  /// Whether one tile holds a latent of [..., height, width].
  bool covers(const tensor::Tensor& latents) const;
};

/// Tiles of so many pixels of which a part `overlap` lies over the neighbour; `factor` pixels make
/// a latent pixel. As the classes of diffusers round: at least one latent pixel, and one a step.
TileSide tile_side(int64_t pixels, int64_t factor, double overlap);

/// Decodes latents [batch, channels, ..., h, w] tile by tile -> [batch, channels', ..., h * factor,
/// w * factor] f32, seams blended (`tiled_decode` of diffusers): where tiles overlap, the later one
/// fades in from left to right and from top to bottom. `decode` makes such an image of one tile;
/// `piece` is called after each tile with the number done and of all. A latent that one tile holds
/// is decoded whole.
tensor::Tensor decode_tiles(const tensor::Tensor& latents, int64_t factor, const Tiling& tiling,
                            const std::function<tensor::Tensor(const tensor::Tensor& tile)>& decode,
                            const std::function<void(int done, int count)>& piece = {});

/// The way back: images [batch, channels, ..., H, W] -> [batch, channels', ..., H / factor,
/// W / factor] f32 in the tiles that `tiling` has of their latents (`tiled_encode` of diffusers).
/// Throws Error(usage) for sizes that are no multiple of the factor.
tensor::Tensor encode_tiles(
    const tensor::Tensor& images, int64_t factor, const Tiling& tiling,
    const std::function<tensor::Tensor(const tensor::Tensor& tile)>& encode);

}  // namespace tessera::models

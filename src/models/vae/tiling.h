#pragma once

#include <cstdint>
#include <functional>

#include "tensor/tensor.h"

namespace tessera::models {

/// Tiles along a side of a latent: tile i begins at i * step; the last tiles are smaller.
struct TileSide {
  int64_t size = 0, step = 0;  ///< latent pixels; neighbours overlap by size - step
};
/// Tiling of a latent for decoding.
struct Tiling {
  TileSide height, width;
  /// True if a single tile holds a latent of [..., height, width].
  bool covers(const tensor::Tensor& latents) const;
};

/// Tile of `pixels` pixels with a relative `overlap`; `factor` pixels make a latent pixel. Rounds
/// like diffusers: at least one latent pixel for size and step.
TileSide tile_side(int64_t pixels, int64_t factor, double overlap);

/// Decodes latents [batch, channels, ..., h, w] tile by tile -> [batch, channels', ..., h * factor,
/// w * factor] f32, with blended seams (`tiled_decode` of diffusers): in an overlap, the later tile
/// fades in from left to right and from top to bottom. `decode` decodes a tile; `piece` is called
/// after each tile with the number done and the total. A latent that fits a single tile is decoded
/// whole.
tensor::Tensor decode_tiles(const tensor::Tensor& latents, int64_t factor, const Tiling& tiling,
                            const std::function<tensor::Tensor(const tensor::Tensor& tile)>& decode,
                            const std::function<void(int done, int count)>& piece = {});

/// Encodes images [batch, channels, ..., H, W] -> [batch, channels', ..., H / factor, W / factor]
/// f32 in the tiles of `tiling` (`tiled_encode` of diffusers). Throws Error(usage) for sizes that
/// are not multiples of the factor.
tensor::Tensor encode_tiles(
    const tensor::Tensor& images, int64_t factor, const Tiling& tiling,
    const std::function<tensor::Tensor(const tensor::Tensor& tile)>& encode);

}  // namespace tessera::models

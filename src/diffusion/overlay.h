#pragma once

#include "media/lanczos.h"
#include "tessera/image.h"

namespace tessera::diffusion {

/// A run paints this region of an image (padding_mask_crop of diffusers). The run's images are
/// resized to the region, and the original image covers them where the mask is black.
struct Overlay {
  media::Pixels image, mask;  ///< both have the same size; the mask has a single channel
  int left = 0, top = 0, width = 0, height = 0;
};

/// Returns the bounding box of the mask's levels above 0 with `pad` pixels around, widened to the
/// aspect of width x height inside the mask, as get_crop_region of diffusers' image processor
/// does. Throws Error(usage) for a black mask.
Overlay masked_region(const media::Pixels& image, const media::Pixels& mask, int width, int height,
                      int pad);
/// Returns the pixels of a region of an image.
media::Pixels region_of(const media::Pixels& image, const Overlay& region);
/// Puts a run's image into the region, and lays the original over it where the mask is black
/// (apply_overlay of diffusers, with the bytes of Pillow).
Image overlaid(const Image& image, const Overlay& overlay);

}  // namespace tessera::diffusion

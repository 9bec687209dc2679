#pragma once

#include "media/lanczos.h"
#include "tessera/image.h"

namespace tessera::diffusion {

/// The region of an image that a run paints (padding_mask_crop of diffusers): images of the run
/// are resized to it, and the image is laid over them where the mask is black.
struct Overlay {
  media::Pixels image, mask;  ///< of one size; the mask has one channel
  int left = 0, top = 0, width = 0, height = 0;
};

/// The region that a mask's levels above 0 fill with `pad` pixels around them, widened to the
/// aspect of width x height within the mask, as get_crop_region of diffusers' image processor
/// finds it. Throws Error(usage) for a mask that is black.
Overlay masked_region(const media::Pixels& image, const media::Pixels& mask, int width, int height,
                      int pad);
/// The pixels of a region of an image.
media::Pixels region_of(const media::Pixels& image, const Overlay& region);
/// An image of a run in its region, under the image as far as the mask is black (apply_overlay of
/// diffusers, in the bytes of Pillow).
Image overlaid(const Image& made, const Overlay& overlay);

}  // namespace tessera::diffusion

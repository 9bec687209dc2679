#pragma once

#include "kernels/cuda/row_map.h"

namespace tessera::kernels::cuda {

struct Finish;

/// A convolution of stride 1 over bf16 images: y[pixel] = sum over taps and channels of w.
struct ImageProduct {
  const void* x;
  Images images;  ///< images x; with `doubled` each pixel is repeated as 2 x 2
  bool doubled;
  int kh, kw, pad_top, pad_left;
  int64_t out_height, out_width;
  const void* w;  ///< bf16 [finish.n, kh, kw, channels]
};

/// True if conv_sm90() supports these images and filters: channels in whole 16-byte words.
inline bool serves_sm90(const ImageProduct& p) {
  const auto address = [](const void* data) { return reinterpret_cast<uintptr_t>(data); };
  return p.images.channels % 8 == 0 &&
         wrong_with(image_map_shape(p.images, 16, 8), address(p.x)) == nullptr &&
         fits_row_map(p.w, p.kh * p.kw * p.images.channels, 1,
                      static_cast<int>(p.kh * p.kw * p.images.channels));
}

/// Implicit matrix product for compute capability 9: boxes of 128 neighbouring pixels are fetched
/// for each tap, with zeros outside the image. finish: rows are pixels of y; the residual is not
/// f16.
void conv_sm90(const ImageProduct& p, const Finish& finish);

}  // namespace tessera::kernels::cuda

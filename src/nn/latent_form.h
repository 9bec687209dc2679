#pragma once

#include "nn/token_layout.h"

namespace tessera::nn {

/// The latent shape in a model's reference pipeline: [batch, C, H, W]; tokens [batch, tokens, C *
/// patch] (FLUX); [batch, F, C, H, W] (CogVideoX); [batch, C * patch, H / p, W / q] (FLUX.2).
enum class LatentForm : uint8_t { image, packed, video, patches };

/// The shape of `batch` latents.
tensor::Shape latent_shape(const TokenLayout& layout, LatentForm form, int64_t batch);
/// f32 in this shape -> [batch * tokens, C * patch]. Throws Error(usage) for other shapes.
tensor::Tensor tokens_of_latent(const tensor::Tensor& latent, const TokenLayout& layout,
                                LatentForm form);
/// The inverse.
tensor::Tensor latent_of_tokens(const tensor::Tensor& tokens, const TokenLayout& layout,
                                LatentForm form);
/// [a, b, c, h, w] -> [a, c, b, h, w].
tensor::Tensor swap_frames(const tensor::Tensor& x);

}  // namespace tessera::nn

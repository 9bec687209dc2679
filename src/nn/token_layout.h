#pragma once

#include <array>
#include <cstdint>

#include "tensor/tensor.h"

namespace tessera::nn {

/// The mapping from latent pixels to tokens: a token is a patch of pt x p x q pixels, its channels
/// in the order (C, pt, p, q), channel slowest; tokens of a sequence run over frames, then height,
/// then width. Extra tokens follow (padding with attention, reference images): the network fills
/// them in and predicts zeros for them, so they stay zeros in the latent.
struct TokenLayout {
  int64_t channels = 0;
  std::array<int64_t, 3> size{1, 1, 1};   ///< frames, height, width of the latent
  std::array<int64_t, 3> patch{1, 1, 1};  ///< pt, p, q
  int64_t extra = 0;                      ///< tokens behind those of the latent

  std::array<int64_t, 3> grid() const {
    return {size[0] / patch[0], size[1] / patch[1], size[2] / patch[2]};
  }
  int64_t latent_tokens() const { return grid()[0] * grid()[1] * grid()[2]; }
  int64_t tokens() const { return latent_tokens() + extra; }
  int64_t token_channels() const { return channels * patch[0] * patch[1] * patch[2]; }
};

/// latent f32 [batch, C, H, W] (one frame) or [batch, C, F, H, W] -> [batch * tokens, C * pt * p *
/// q], extra ones zeros. Throws Error(usage) if the sizes are not multiples of the patch.
tensor::Tensor to_tokens(const tensor::Tensor& latent, const TokenLayout& layout);
/// The inverse: [batch * tokens, C * pt * p * q] f32 -> [batch, C, H, W] or [batch, C, F, H, W].
tensor::Tensor from_tokens(const tensor::Tensor& tokens, const TokenLayout& layout, bool frames);
/// [batch * latent_tokens, c] with the extra tokens of the layout, zeros; and without them.
tensor::Tensor with_extra(const tensor::Tensor& tokens, const TokenLayout& layout);
tensor::Tensor without_extra(const tensor::Tensor& tokens, const TokenLayout& layout);

/// Rows of a model's last Linear with order (p, q, C) for each token, in the order (C, p, q): for a
/// weight [p*q*C, k] or a bias [p*q*C]. `patch` is p * q.
tensor::Tensor channel_slowest(const tensor::Tensor& rows, int64_t patch, int64_t channels);

}  // namespace tessera::nn

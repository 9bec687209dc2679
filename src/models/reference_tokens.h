#pragma once

#include <array>
#include <vector>

#include "models/dit_parts.h"

namespace tessera::models {

/// Images that stand as tokens behind the latent's in every sequence, and are not denoised.
struct References {
  std::vector<std::array<int64_t, 2>> sizes;  ///< lines and columns of tokens; empty on meta
  Tensor tokens;                              ///< f32 [batch * shape.extra, channels]
};
/// Reads "reference_tokens" [batch, tokens, channels] and "reference_sizes" i32 [batch, 2 *
/// images]. Throws Error(usage) unless they are the extra tokens of `shape`.
References references_of(const nn::Conditioning& conditioning, const nn::TokenShape& shape,
                         int64_t channels);

/// Rows of references among the latent rows of a view, and their rows in References::tokens.
struct ReferenceRows {
  std::vector<int32_t> at, from;
};
ReferenceRows reference_rows(const nn::TokenShape& shape, const nn::Segments& body);
/// The rows of a latent with those of the references in place; the latent itself if it has none.
Tensor with_references(const Tensor& latent, const Tensor& tokens, const ReferenceRows& rows);
/// Sets what was predicted for references to zero.
void clear_references(const Tensor& prediction, const ReferenceRows& rows);

}  // namespace tessera::models

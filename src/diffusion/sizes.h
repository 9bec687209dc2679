#pragma once

#include "nn/token_layout.h"

namespace tessera::diffusion {

/// Limit of tokens in a step: 17 GB for the narrowest activations.
constexpr int64_t kMostTokens = int64_t{1} << 26;

/// Throws Error(memory) for more tokens in a step than any machine could hold.
void check_tokens(const nn::TokenLayout& layout, int64_t batch);

/// Pixels of a side -> latent pixels; 0 stays 0 (as trained). Throws Error(usage) naming --`side`
/// and the nearest sizes that fill patches of `patch` latent pixels.
int64_t latent_pixels(int64_t pixels, int64_t factor, int64_t patch, const char* side);

/// Checks --vae-chunk for an image of `lines` lines and returns it; 0 stays 0 (all lines). Throws
/// Error(usage) for more lines than there are.
int64_t checked_chunk(int64_t chunk, int64_t lines);

}  // namespace tessera::diffusion

#include "diffusion/sizes.h"

#include "base/fail.h"

namespace tessera::diffusion {

int64_t latent_pixels(int64_t pixels, int64_t factor, int64_t patch, const char* side) {
  constexpr int64_t kMost = 1 << 20;
  const int64_t unit = factor * patch;
  require(pixels >= 0 && pixels <= kMost, ErrorCode::usage,
          "`{}` {}: expected a multiple of {} up to {}, or nothing for the trained size", side,
          pixels, unit, kMost);
  const int64_t below = pixels / unit * unit;
  require(pixels == below, ErrorCode::usage, "`{}` {}: expected a multiple of {}: {}{}", side,
          pixels, unit, below > 0 ? fmt::format("{} or ", below) : "", below + unit);
  return pixels / factor;
}

int64_t checked_chunk(int64_t chunk, int64_t lines) {
  require(chunk <= lines, ErrorCode::usage,
          "`vae_chunk` {}: an image here has {} line{}; use 1 to {}, or leave it out", chunk, lines,
          lines == 1 ? "" : "s", lines);
  return chunk;
}

void check_tokens(const nn::TokenLayout& layout, int64_t batch) {
  require(layout.tokens() <= kMostTokens / batch, ErrorCode::memory,
          "a step of this run has {:.0f} tokens, too many for any machine: use a smaller size or "
          "`count`",
          double(layout.tokens()) * double(batch));
}

}  // namespace tessera::diffusion

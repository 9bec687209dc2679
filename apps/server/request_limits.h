#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tessera::server {

/// Limits of a single request.
struct Limits {
  size_t prompt = size_t{1} << 16;     ///< bytes of all texts
  int64_t pixels = int64_t{64} << 20;  ///< total of all images and frames
  int images = 64;                     ///< images, videos or answers
  int steps = 1000;                    ///< denoising steps
  int64_t tokens = 1 << 16;            ///< tokens of an answer
  std::string loras{};                 ///< folder of adapters; "": requests may not name adapters
};

}  // namespace tessera::server

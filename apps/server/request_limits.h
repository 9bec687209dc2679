#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tessera::server {

/// What one request may ask for at most.
struct Limits {
  size_t prompt = size_t{1} << 16;     ///< bytes of all its texts
  int64_t pixels = int64_t{64} << 20;  ///< of all its images and frames
  int images = 64;                     ///< images, videos or answers
  int steps = 1000;                    ///< of denoising
  int64_t tokens = 1 << 16;            ///< of an answer
  std::string loras{};                 ///< folder of adapters; "": requests name none
};

}  // namespace tessera::server

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

/// An image: RGB, 8 bits, lines from top to bottom, `3 * width * height` bytes.
struct Image {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> rgb;
  std::string label;          ///< its class or prompt
  int video = -1, frame = 0;  ///< place in a video; -1: an image
  double frame_rate = 0;      ///< frames a second of a video
};

}  // namespace tessera

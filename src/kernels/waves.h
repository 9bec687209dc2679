#pragma once

#include <cstdint>

namespace tessera::kernels {

/// y[r, i] and y[r, half + i] = cosine and sine of scale * t[r] * frequency[i], i < half, in f32;
/// sin_first swaps the halves. A last odd column is not written.
struct WavesArgs {
  const float* t = nullptr;          ///< [rows]
  const float* frequency = nullptr;  ///< [half]
  int64_t rows = 0, half = 0;
  float scale = 1;
  bool sin_first = false;
  float* y = nullptr;  ///< [rows, y_stride]
  int64_t y_stride = 0;
};

namespace reference {
/// Plain loops: the definition of correct results.
void waves(const WavesArgs& args);
}  // namespace reference
namespace cuda {
/// Each thread computes an angle.
void waves(const WavesArgs& args);
}  // namespace cuda

}  // namespace tessera::kernels

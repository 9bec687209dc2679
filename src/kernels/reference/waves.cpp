#include "kernels/waves.h"

#include <cmath>

namespace tessera::kernels::reference {

void waves(const WavesArgs& args) {
  for (int64_t r = 0; r < args.rows; ++r)
    for (int64_t i = 0; i < args.half; ++i) {
      const float angle = args.scale * args.t[r] * args.frequency[i];
      float* row = args.y + r * args.y_stride;
      row[args.sin_first ? args.half + i : i] = std::cos(angle);
      row[args.sin_first ? i : args.half + i] = std::sin(angle);
    }
}

}  // namespace tessera::kernels::reference

#include "kernels/group_norm.h"

namespace tessera::kernels {

void merge_moment_runs(const MomentRun* runs, int64_t count, int64_t channels, float* moments) {
  for (int64_t c = 0; c < channels; ++c) {
    double n = 0, mean = 0, spread = 0;
    for (int64_t r = 0; r < count; ++r) {
      const double m = static_cast<double>(runs[r].pixels), s = runs[r].sum[c];
      const double delta = runs[r].offset[c] + s / m - mean;
      spread += runs[r].squares[c] - s * s / m + delta * delta * n * m / (n + m);
      mean += delta * m / (n + m);
      n += m;
    }
    moments[c] = static_cast<float>(mean);
    moments[channels + c] = static_cast<float>(spread > 0 ? spread / n : 0);
  }
}

}  // namespace tessera::kernels

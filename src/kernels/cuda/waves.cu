#include "kernels/cuda/launch.cuh"
#include "kernels/waves.h"

namespace tessera::kernels::cuda {
namespace {

__global__ void __launch_bounds__(kSpreadThreads) waves_kernel(WavesArgs a) {
  after_those_before();
  for (int64_t n = first_piece(); n < a.rows * a.half; n += piece_step()) {
    const int64_t r = n / a.half, i = n % a.half;
    const float angle = a.scale * a.t[r] * a.frequency[i];
    float* row = a.y + r * a.y_stride;
    row[a.sin_first ? a.half + i : i] = cosf(angle);
    row[a.sin_first ? i : a.half + i] = sinf(angle);
  }
}

}  // namespace

void waves(const WavesArgs& args) {
  launch("waves", waves_kernel, early(spread(args.rows * args.half)), args);
}

}  // namespace tessera::kernels::cuda

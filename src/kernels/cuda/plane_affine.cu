#include "kernels/cuda/launch.cuh"
#include "kernels/plane_affine.h"

namespace tessera::kernels::cuda {
namespace {

__global__ void __launch_bounds__(kSpreadThreads)
    plane_affine_kernel(PlaneAffineArgs a, int64_t total) {
  for (int64_t i = first_piece(); i < total; i += piece_step()) {
    const int64_t c = i % a.channels, pixel = i / a.channels;
    const int64_t column = pixel % a.size.width, line = pixel / a.size.width;
    const int64_t frame =
        nearest_frame(line / a.size.height, a.size.frames, a.field.frames) * a.field.height;
    const int64_t above = line % a.size.height * a.field.height / a.size.height;
    const int64_t beside = column * a.field.width / a.size.width;
    const int64_t there = ((frame + above) * a.field.width + beside) * a.channels + c;
    float v[1];
    load<1>(a.x, a.dtype, i, v);
    v[0] =
        (v[0] * a.scale_shift[c] + a.scale_shift[a.channels + c]) * a.gain[there] + a.bias[there];
    v[0] = silu(v[0]);
    store<1>(a.y, a.dtype, i, v);
  }
}

}  // namespace

void plane_affine(const PlaneAffineArgs& args) {
  const int64_t total = args.size.frames * args.size.height * args.size.width * args.channels;
  launch("plane_affine", plane_affine_kernel, spread(total), args, total);
}

}  // namespace tessera::kernels::cuda

#include "kernels/cuda/launch.cuh"
#include "kernels/rope.h"

namespace tessera::kernels::cuda {
namespace {

// A thread turns one pair, or copies one channel behind the pairs.
__global__ void __launch_bounds__(kSpreadThreads) rope_kernel(RopeArgs a) {
  const int64_t places = a.head_dim - a.pairs, total = a.tokens * a.heads * places;
  for (int64_t n = first_piece(); n < total; n += piece_step()) {
    const int64_t i = n % places, head = n / places % a.heads, token = n / places / a.heads;
    const int64_t x = token * a.x_stride + head * a.head_dim;
    const int64_t y = token * a.y_stride + head * a.head_dim;
    float first[1], second[1];
    if (i >= a.pairs) {
      load<1>(a.x, a.dtype, x + a.pairs + i, first);
      store<1>(a.y, a.dtype, y + a.pairs + i, first);
      continue;
    }
    const int64_t at = a.interleaved ? 2 * i : i, across = a.interleaved ? 1 : a.pairs;
    const float cosine = a.cos[token * a.pairs + i], sine = a.sin[token * a.pairs + i];
    load<1>(a.x, a.dtype, x + at, first);
    load<1>(a.x, a.dtype, x + at + across, second);
    const float low[1] = {first[0] * cosine - second[0] * sine};
    const float high[1] = {second[0] * cosine + first[0] * sine};
    store<1>(a.y, a.dtype, y + at, low);
    store<1>(a.y, a.dtype, y + at + across, high);
  }
}

}  // namespace

void rope(const RopeArgs& args) {
  launch("rope", rope_kernel, spread(args.tokens * args.heads * (args.head_dim - args.pairs)),
         args);
}

}  // namespace tessera::kernels::cuda

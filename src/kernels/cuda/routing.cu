#include "kernels/cuda/routing.cuh"
#include "kernels/device_error.h"

namespace tessera::kernels::cuda {
namespace {

__global__ void route_kernel(RouteArgs a) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = threadIdx.x / kWarp;
  const int64_t t = int64_t{blockIdx.x} * (blockDim.x / kWarp) + warp;
  if (t < a.tokens)
    route_by_warp(a, t, dynamic_shared() + warp * route_bytes(a.experts, a.groups), lane);
}

}  // namespace

void route(const RouteArgs& args) {
  const int64_t bytes = route_bytes(args.experts, args.groups);
  if (bytes > 48 * 1024) unsupported("route", "experts", args.experts, "at most 2900");
  const int warps = 4 * bytes <= 48 * 1024 ? 4 : 1;
  launch("route", route_kernel,
         Launch{.blocks = ceil_div<int64_t>(args.tokens, warps),
                .threads = warps * kWarp,
                .shared = warps * bytes},
         args);
}

}  // namespace tessera::kernels::cuda

#include "kernels/cuda/routing.cuh"
#include "kernels/device_error.h"

namespace tessera::kernels::cuda {
namespace {

// Shared memory of a warp: exact scores, scores, ranks, group values and marks.
constexpr int64_t warp_bytes(int64_t experts, int64_t groups) {
  return ceil_div<int64_t>(experts * 16 + groups * 8, 16) * 16;
}

__global__ void route_kernel(RouteArgs a) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = threadIdx.x / kWarp;
  const int64_t t = int64_t{blockIdx.x} * (blockDim.x / kWarp) + warp;
  if (t >= a.tokens) return;
  const int experts = static_cast<int>(a.experts);
  auto* exact = reinterpret_cast<double*>(dynamic_shared() + warp * warp_bytes(experts, a.groups));
  auto* score = reinterpret_cast<float*>(exact + experts);
  float *rank = score + experts, *worth = rank + experts;
  const float* logits = a.logits + t * experts;
  const double sum = exact_scores(a, logits, exact, lane);
  for (int e = lane; e < experts; e += kWarp) {
    score[e] = static_cast<float>(exact[e] / sum);
    rank[e] = (a.sigmoid ? score[e] : logits[e]) + (a.bias ? a.bias[e] : 0);
    if (a.scores) a.scores[t * experts + e] = score[e];
  }
  __syncwarp();
  if (a.top_groups < a.groups)
    close_groups(a, rank, worth, reinterpret_cast<int*>(worth + a.groups), lane);
  int32_t* ids = a.ids + t * a.top_k;
  float* weights = a.weights + t * a.top_k;
  float total = a.sigmoid ? 1e-20f : 0;
  take_best(rank, experts, a.top_k, lane, [&](int j, Best best) {
    const bool found = best.index < experts;
    const float weight = found ? score[best.index] : 0;
    total += weight;
    if (lane == j % kWarp) {
      ids[j] = found ? best.index : -1;
      weights[j] = weight;
    }
  });
  const float scale = a.renormalise ? a.scale / total : a.scale;
  for (int j = lane; j < a.top_k; j += kWarp)
    weights[j] = ids[j] < 0 ? 0 : weights[j] * scale * expert_scale(a, ids[j]);
}

}  // namespace

void route(const RouteArgs& args) {
  const int64_t bytes = warp_bytes(args.experts, args.groups);
  if (bytes > 48 * 1024) unsupported("route", "experts", args.experts, "at most 2900");
  const int warps = 4 * bytes <= 48 * 1024 ? 4 : 1;
  launch("route", route_kernel,
         Launch{.blocks = ceil_div<int64_t>(args.tokens, warps),
                .threads = warps * kWarp,
                .shared = warps * bytes},
         args);
}

}  // namespace tessera::kernels::cuda

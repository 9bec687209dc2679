#include "kernels/cuda/launch.cuh"
#include "kernels/device_error.h"
#include "kernels/routing.h"

namespace tessera::kernels::cuda {
namespace {

struct Best {
  float value;
  int index;
};

__device__ inline Best better(Best a, Best b) {
  return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
}

// The largest of n ranks and the lowest index that has it; -inf and NaN are never taken.
__device__ inline Best best_of(const float* rank, int n, int lane) {
  Best best{-INFINITY, n};
  for (int i = lane; i < n; i += kWarp)
    if (rank[i] > best.value) best = {rank[i], i};
  for (int step = kWarp / 2; step > 0; step /= 2)
    best = better(best, {__shfl_xor_sync(kAllLanes, best.value, step),
                         __shfl_xor_sync(kAllLanes, best.index, step)});
  return best;
}

__device__ inline void close_groups(const RouteArgs& a, float* rank, float* worth, int* open,
                                    int lane) {
  const int size = static_cast<int>(a.experts) / a.groups;
  for (int g = lane; g < a.groups; g += kWarp) {
    float first = -INFINITY, second = -INFINITY;
    for (int i = g * size; i < (g + 1) * size; ++i) {
      const float r = rank[i];
      if (r > first) {
        second = first;
        first = r;
      } else if (r > second) {
        second = r;
      }
    }
    worth[g] = second > -INFINITY ? first + second : first;
    open[g] = 0;
  }
  __syncwarp();
  for (int j = 0; j < a.top_groups; ++j) {
    const Best best = best_of(worth, a.groups, lane);
    __syncwarp();
    if (lane == 0 && best.index < a.groups) {
      worth[best.index] = -INFINITY;
      open[best.index] = 1;
    }
    __syncwarp();
  }
  for (int e = lane; e < a.experts; e += kWarp)
    if (!open[e / size]) rank[e] = -INFINITY;
  __syncwarp();
}

// Shared memory of a warp: exact scores, scores, ranks, worths and marks of groups.
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
  float top = -INFINITY;
  for (int e = lane; e < experts; e += kWarp) top = logits[e] > top ? logits[e] : top;
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, top, step);
    top = other > top ? other : top;
  }
  double sum = 0;
  for (int e = lane; e < experts; e += kWarp) {
    const double x = logits[e];
    exact[e] = a.sigmoid ? 1 / (1 + exp(-x)) : exp(x - double{top});
    sum += exact[e];
  }
  for (int step = kWarp / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
  for (int e = lane; e < experts; e += kWarp) {
    score[e] = static_cast<float>(a.sigmoid ? exact[e] : exact[e] / sum);
    rank[e] = (a.sigmoid ? score[e] : logits[e]) + (a.bias ? a.bias[e] : 0);
    if (a.scores) a.scores[t * experts + e] = score[e];
  }
  __syncwarp();
  if (a.top_groups < a.groups)
    close_groups(a, rank, worth, reinterpret_cast<int*>(worth + a.groups), lane);
  int32_t* ids = a.ids + t * a.top_k;
  float* weights = a.weights + t * a.top_k;
  float total = a.sigmoid ? 1e-20f : 0;
  for (int j = 0; j < a.top_k; ++j) {
    const Best best = best_of(rank, experts, lane);
    const bool found = best.index < experts;
    const float weight = found ? score[best.index] : 0;
    total += weight;
    __syncwarp();
    if (found && lane == best.index % kWarp) rank[best.index] = -INFINITY;
    __syncwarp();
    if (lane == j % kWarp) {
      ids[j] = found ? best.index : -1;
      weights[j] = weight;
    }
  }
  const float scale = a.renormalise ? a.scale / total : a.scale;
  for (int j = lane; j < a.top_k; j += kWarp) weights[j] = ids[j] < 0 ? 0 : weights[j] * scale;
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

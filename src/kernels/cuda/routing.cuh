#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/routing.h"

namespace tessera::kernels::cuda {

struct Best {
  float value;
  int index;
};

__device__ inline Best better(Best a, Best b) {
  return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
}

__device__ inline Best best_of_warp(Best best) {
  for (int step = kWarp / 2; step > 0; step /= 2)
    best = better(best, {__shfl_xor_sync(kAllLanes, best.value, step),
                         __shfl_xor_sync(kAllLanes, best.index, step)});
  return best;
}
__device__ inline double sum_of_warp(double sum) {
  for (int step = kWarp / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
  return sum;
}

// The largest of n ranks and its lowest index; -inf and NaN are never taken.
__device__ inline Best best_of(const float* rank, int n, int lane) {
  Best best{-INFINITY, n};
  for (int i = lane; i < n; i += kWarp)
    if (rank[i] > best.value) best = {rank[i], i};
  return best_of_warp(best);
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

// Sigmoids or exponentials of a token's logits, computed by a warp; returns the denominator of
// softmax (sigmoid: 1).
__device__ inline double exact_scores(const RouteArgs& a, const float* logits, double* exact,
                                      int lane) {
  float top = -INFINITY;
  for (int e = lane; e < a.experts; e += kWarp) top = logits[e] > top ? logits[e] : top;
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, top, step);
    top = other > top ? other : top;
  }
  double sum = 0;
  for (int e = lane; e < a.experts; e += kWarp) {
    const double x = logits[e];
    exact[e] = a.sigmoid ? 1 / (1 + exp(-x)) : exp(x - double{top});
    sum += exact[e];
  }
  return a.sigmoid ? 1 : sum_of_warp(sum);
}

/// Takes the `count` largest of n ranks, with their scores as weights; id -1: none is left. Returns
/// the sum of the weights, beginning with `sum`.
__device__ inline float take_best(float* rank, const float* score, int n, int count, int lane,
                                  float sum, int32_t* ids, float* weights) {
  for (int j = 0; j < count; ++j) {
    const Best best = best_of(rank, n, lane);
    __syncwarp();
    if (best.index < n && lane == best.index % kWarp) rank[best.index] = -INFINITY;
    __syncwarp();
    const bool valid = best.index < n;
    const float weight = valid ? score[best.index] : 0;
    sum += weight;
    if (lane == j % kWarp) {
      ids[j] = valid ? best.index : -1;
      weights[j] = weight;
    }
  }
  return sum;
}

/// Shared memory of a warp that routes: exact scores, scores, ranks, group values and marks.
constexpr int64_t route_bytes(int64_t experts, int64_t groups) {
  return ceil_div<int64_t>(experts * 16 + groups * 8, 16) * 16;
}

/// Routes token t by a warp; exact scores stay in `shared`. Returns their denominator.
__device__ inline double route_by_warp(const RouteArgs& a, int64_t t, unsigned char* shared,
                                       int lane) {
  const int experts = static_cast<int>(a.experts);
  auto* exact = reinterpret_cast<double*>(shared);
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
  const float total =
      take_best(rank, score, experts, a.top_k, lane, a.sigmoid ? 1e-20f : 0, ids, weights);
  const float scale = a.renormalise ? a.scale / total : a.scale;
  for (int j = lane; j < a.top_k; j += kWarp)
    weights[j] = ids[j] < 0 ? 0 : weights[j] * scale * expert_scale(a, ids[j]);
  return sum;
}

}  // namespace tessera::kernels::cuda

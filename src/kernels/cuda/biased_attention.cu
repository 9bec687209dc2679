#include "kernels/biased_attention.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/device_error.h"

namespace tessera::kernels::cuda {
namespace {

constexpr int kQueryThreads = 128;

template <class Combine>
__device__ inline float over_block(float x, float* partial, Combine combine) {
  for (int step = kWarp / 2; step > 0; step /= 2)
    x = combine(x, __shfl_xor_sync(kAllLanes, x, step));
  __syncthreads();
  if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = x;
  __syncthreads();
  x = partial[0];
  for (int w = 1; w < kQueryThreads / kWarp; ++w) x = combine(x, partial[w]);
  return x;
}

// A block: one query of one head. Threads take keys, then channels.
__global__ void __launch_bounds__(kQueryThreads) biased_attention_kernel(BiasedAttentionArgs a) {
  __shared__ float partial[kQueryThreads / kWarp];
  const int64_t t = blockIdx.x / a.heads, head = blockIdx.x % a.heads, at = head * a.head_dim;
  auto* query = reinterpret_cast<float*>(dynamic_shared());
  float* scores = query + a.head_dim;
  float v[1];
  for (int64_t c = threadIdx.x; c < a.head_dim; c += kQueryThreads) {
    load<1>(a.q, a.dtype, t * a.q_stride + at + c, v);
    query[c] = v[0];
  }
  __syncthreads();
  const float* bias = a.bias + head * a.bias_stride + a.tokens - 1 - t;
  float largest = -INFINITY;
  for (int64_t j = threadIdx.x; j < a.visible; j += kQueryThreads) {
    float score = 0;
    for (int64_t c = 0; c < a.head_dim; ++c) {
      load<1>(a.k, a.dtype, j * a.k_stride + at + c, v);
      score += query[c] * v[0];
    }
    scores[j] = score + bias[j];
    largest = scores[j] > largest ? scores[j] : largest;
  }
  largest = over_block(largest, partial, [](float x, float y) { return x > y ? x : y; });
  float sum = 0;
  for (int64_t j = threadIdx.x; j < a.visible; j += kQueryThreads) {
    const float e = expf(scores[j] - largest);
    sum += e;
    scores[j] = a.dtype == DType::bf16 ? widen(narrow<BFloat16>(e)) : e;
  }
  sum = over_block(sum, partial, [](float x, float y) { return x + y; });
  for (int64_t c = threadIdx.x; c < a.head_dim; c += kQueryThreads) {
    float mixed = 0;
    for (int64_t j = 0; j < a.visible; ++j) {
      load<1>(a.v, a.dtype, j * a.v_stride + at + c, v);
      mixed += scores[j] * v[0];
    }
    v[0] = mixed / sum;
    store<1>(a.out, a.dtype, t * a.out_stride + at + c, v);
  }
}

}  // namespace

void biased_attention(const BiasedAttentionArgs& args) {
  const int64_t bytes = (args.visible + args.head_dim) * 4;
  if (bytes > 160 * 1024) unsupported("biased_attention", "tokens", args.visible, "at most 40000");
  launch("biased_attention", biased_attention_kernel,
         Launch{.blocks = args.tokens * args.heads, .threads = kQueryThreads, .shared = bytes},
         args);
}

}  // namespace tessera::kernels::cuda

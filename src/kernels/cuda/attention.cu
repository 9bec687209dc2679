#include "kernels/attention.h"
#include "kernels/cuda/attention_sm90.h"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/attention_wide.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/row_map.h"
#include "kernels/device_error.h"

namespace tessera::kernels::cuda {
namespace {

constexpr int kPlainWarps = 4, kPlainChannels = kMostPlainHeadDim / kWarp;

// For f32 and for heads that the tiles do not take: a query a warp, a key a lane, then a channel a
// lane.
template <int V>
__global__ void __launch_bounds__(kPlainWarps* kWarp) attention_plain_kernel(AttentionArgs a) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = threadIdx.x / kWarp;
  auto* query = reinterpret_cast<float*>(dynamic_shared()) + warp * a.head_dim;
  AttentionItem item;
  for (int64_t index = int64_t{blockIdx.x} * kPlainWarps + warp; find_item(a, 1, index, item);
       index += int64_t{gridDim.x} * kPlainWarps) {
    const int64_t at = int64_t{item.head} * a.head_dim;
    const int64_t kv_at = int64_t{item.head / (a.heads / a.kv_heads)} * a.head_dim;
    __syncwarp();
    float value[1];
    for (int c = lane; c < a.head_dim; c += kWarp) {
      load<1>(a.q, a.dtype, item.first * a.q_stride + at + c, value);
      query[c] = value[0];
    }
    __syncwarp();
    float out[kPlainChannels] = {}, top = -INFINITY, sum = 0;
    for (int64_t first = item.k_begin; first < item.k_end; first += kWarp) {
      const int64_t key = first + lane;
      float score = -INFINITY, v[V];
      if (key < item.k_end) {
        score = 0;
        for (int c = 0; c < a.head_dim; c += V) {
          load<V>(a.k, a.dtype, key * a.k_stride + kv_at + c, v);
          TESSERA_UNROLL
          for (int i = 0; i < V; ++i) score = fmaf(query[c + i], v[i], score);
        }
        score *= a.scale;
      }
      float highest = fmaxf(top, score);
      for (int step = kWarp / 2; step > 0; step /= 2)
        highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, step));
      const float shrink = expf(top - highest);
      top = highest;
      score = expf(score - top);
      sum = sum * shrink + score;
      TESSERA_UNROLL
      for (int i = 0; i < kPlainChannels; ++i) out[i] *= shrink;
      for (int j = 0; j < kWarp; ++j) {
        const float p = __shfl_sync(kAllLanes, score, j);
        if (first + j >= item.k_end) continue;
        TESSERA_UNROLL
        for (int i = 0; i < kPlainChannels; ++i)
          if (lane + i * kWarp < a.head_dim) {
            load<1>(a.v, a.dtype, (first + j) * a.v_stride + kv_at + lane + i * kWarp, value);
            out[i] = fmaf(p, value[0], out[i]);
          }
      }
    }
    sum = sum_over_lanes(sum, kWarp);
    TESSERA_UNROLL
    for (int i = 0; i < kPlainChannels; ++i)
      if (lane + i * kWarp < a.head_dim) {
        value[0] = sum > 0 ? out[i] / sum : 0;
        store<1>(a.out, a.wide ? DType::f32 : a.dtype,
                 item.first * a.out_stride + at + lane + i * kWarp, value);
      }
    if (a.lse && lane == 0)
      a.lse[item.first * a.heads + item.head] = sum > 0 ? top + logf(sum) : -INFINITY;
  }
}

bool all_in_words(const AttentionArgs& a) {
  return a.head_dim % 8 == 0 && in_words(a.q, a.dtype, a.q_stride) &&
         in_words(a.k, a.dtype, a.k_stride) && in_words(a.v, a.dtype, a.v_stride) &&
         in_words(a.out, a.wide ? DType::f32 : a.dtype, a.out_stride);
}

// Heads of fused rows of any other width are left to the kernel that copies them itself.
bool all_in_boxes(const AttentionArgs& a) {
  return fits_row_map(a.q, a.q_stride, a.heads, a.head_dim) &&
         fits_row_map(a.k, a.k_stride, a.kv_heads, a.head_dim) &&
         fits_row_map(a.v, a.v_stride, a.kv_heads, a.head_dim);
}

void attention_wide(const AttentionArgs& args, int keys) {
  launch("attention", keys == 64 ? attention_wide_kernel<64> : attention_wide_kernel<32>,
         Launch{.blocks = multiprocessors(),
                .threads = kWideThreads,
                .shared = keys == 64 ? WideTile<64>::kShared : WideTile<32>::kShared},
         args);
}

}  // namespace

void attention(const AttentionArgs& args) {
  if (args.span_count == 0) return;
  if (args.head_dim > kMostPlainHeadDim)
    unsupported("attention", "head_dim", args.head_dim, "at most 512");
  const bool words = all_in_words(args);
  const AttentionPlan plan = attention_plan(args.dtype == DType::bf16, args.head_dim, words);
  if (plan.width == 0 && words && args.dtype == DType::bf16) {
    const int keys = wide_keys(most_shared());
    if (keys > 0) return attention_wide(args, keys);
  }
  if (plan.width == 0) {
    launch("attention", words ? attention_plain_kernel<8> : attention_plain_kernel<1>,
           Launch{.blocks = 16 * multiprocessors(),
                  .threads = kPlainWarps * kWarp,
                  .shared = int64_t{kPlainWarps} * args.head_dim * 4},
           args);
    return;
  }
  if (all_in_boxes(args) && has_warpgroups()) return attention_sm90(args);
  launch(
      "attention",
      plan.width == 64    ? attention_kernel<64, 64>
      : plan.width == 80  ? attention_kernel<80, 64>
      : plan.width == 128 ? attention_kernel<128, 64>
                          : attention_kernel<256, 16>,
      Launch{
          .blocks = 2 * multiprocessors(), .threads = kAttentionThreads, .shared = plan.shared()},
      args);
}

}  // namespace tessera::kernels::cuda

#include "kernels/attention.h"
#include "kernels/cuda/attention_f32.cuh"
#include "kernels/cuda/attention_sm90.h"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/attention_wide.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/row_map.h"
#include "kernels/device_error.h"

namespace tessera::kernels::cuda {
namespace {

template <int Pieces, PlainAccess Access>
__global__ void __launch_bounds__(kPlainBlock, plain_blocks(Pieces, Access))
    attention_f32_kernel(AttentionArgs a) {
  AttentionItem item;
  for (int64_t index = blockIdx.x; find_item(a, kPlainTile, index, item); index += gridDim.x)
    attend_f32<Pieces, Access>(a, item, {});
}

// Heads of fused rows with another width are left to the kernel with its own copies.
bool all_in_boxes(const AttentionArgs& a) {
  return fits_row_map(a.q, a.q_stride, a.heads, a.head_dim) &&
         fits_row_map(a.k, a.k_stride, a.kv_heads, a.head_dim) &&
         fits_row_map(a.v, a.v_stride, a.kv_heads, a.head_dim);
}

void attention_wide(const AttentionArgs& args, int keys) {
  launch("attention", keys == 64 ? attention_wide_kernel<64> : attention_wide_kernel<32>,
         Launch{.blocks = unspared(multiprocessors()),
                .threads = kWideThreads,
                .shared = keys == 64 ? WideTile<64>::kShared : WideTile<32>::kShared},
         args);
}

void attention_f32(const AttentionArgs& args) {
  with_plain_kernel(args, [&](auto pieces, auto access) {
    launch("attention", attention_f32_kernel<pieces(), access()>,
           Launch{.blocks = 16 * multiprocessors(), .threads = kPlainBlock, .shared = kPlainShared},
           args);
  });
}

}  // namespace

void attention(const AttentionArgs& args) {
  if (args.span_count == 0) return;
  if (args.head_dim > kMostPlainHeadDim)
    unsupported("attention", "head_dim", args.head_dim, "at most 512");
  const bool words = reads_words(args);
  const AttentionPlan plan = attention_plan(args.dtype == DType::bf16, args.head_dim, words);
  if (plan.width == 0 && words && args.dtype == DType::bf16) {
    const int keys = wide_keys(most_shared());
    if (keys > 0) return attention_wide(args, keys);
  }
  if (plan.width == 0) return attention_f32(args);
  if (all_in_boxes(args) && has_warpgroups()) return attention_sm90(args);
  // If multiprocessors are reserved for other kernels, no multiprocessor holds two blocks, because
  // two would use all multiprocessors.
  const bool alone = !nothing_spared();
  launch("attention",
         plan.width == 64    ? attention_kernel<64, 64>
         : plan.width == 80  ? attention_kernel<80, 64>
         : plan.width == 128 ? attention_kernel<128, 64>
                             : attention_kernel<256, 16>,
         Launch{.blocks = (alone ? 1 : 2) * unspared(multiprocessors()),
                .threads = kAttentionThreads,
                .shared = alone ? most_shared() : plan.shared()},
         args);
}

}  // namespace tessera::kernels::cuda

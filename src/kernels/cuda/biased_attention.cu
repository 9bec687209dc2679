#include "kernels/biased_attention.h"
#include "kernels/cuda/attention_f32.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/device_error.h"

namespace tessera::kernels::cuda {
namespace {

// A thread block handles 64 queries of a head; `bias` begins at distance 0 of head 0.
template <int Pieces, PlainAccess Access>
__global__ void __launch_bounds__(kPlainBlock, plain_blocks(Pieces, Access))
    biased_attention_kernel(AttentionArgs a, const float* bias, int64_t bias_stride,
                            int64_t visible) {
  const int64_t tiles = ceil_div<int64_t>(a.q_tokens, kPlainTile);
  const int64_t first = blockIdx.x % tiles * kPlainTile, head = blockIdx.x / tiles;
  const int64_t last = first + kPlainTile < a.q_tokens ? first + kPlainTile : a.q_tokens;
  attend_f32<Pieces, Access>(a, {first, last, 0, visible, static_cast<int>(head)},
                             {bias + head * bias_stride, a.dtype == DType::bf16});
}

}  // namespace

void biased_attention(const BiasedAttentionArgs& args) {
  if (args.head_dim > kMostPlainHeadDim)
    unsupported("biased_attention", "head_dim", args.head_dim, "at most 512");
  const AttentionArgs plain{.q = args.q,
                            .k = args.k,
                            .v = args.v,
                            .q_stride = args.q_stride,
                            .k_stride = args.k_stride,
                            .v_stride = args.v_stride,
                            .q_tokens = args.tokens,
                            .k_tokens = args.tokens,
                            .out = args.out,
                            .out_stride = args.out_stride,
                            .dtype = args.dtype,
                            .heads = static_cast<int>(args.heads),
                            .kv_heads = static_cast<int>(args.heads),
                            .head_dim = static_cast<int>(args.head_dim)};
  with_plain_kernel(plain, [&](auto pieces, auto access) {
    launch("biased_attention", biased_attention_kernel<pieces(), access()>,
           Launch{.blocks = ceil_div<int64_t>(args.tokens, kPlainTile) * args.heads,
                  .threads = kPlainBlock,
                  .shared = kPlainShared},
           plain, args.bias + args.tokens - 1, args.bias_stride, args.visible);
  });
}

}  // namespace tessera::kernels::cuda

#include "kernels/cuda/attention_sm90.cuh"
#include "kernels/cuda/launch.cuh"

namespace tessera::kernels::cuda {
namespace {

template <int Width>
__global__ void __launch_bounds__(kSm90Threads, 1)
    attention_sm90_kernel(const __grid_constant__ AttentionArgs a,
                          const __grid_constant__ Sm90Maps maps) {
#if TESSERA_WARPGROUPS
  const Sm90Shared<Width> shared(dynamic_shared());
  if (threadIdx.x == 0) shared.open();
  after_those_before();
  divide([&] { fetch_all<Width>(a, maps, shared); }, [&] { compute_all<Width>(a, shared); });
#else
  __trap();
#endif
}

template <int Width>
void run(const AttentionArgs& a) {
  constexpr int kKeys = Sm90Tile<Width>::kKeys;
  const char* name = "attention";
  const Sm90Maps maps{row_map(name, a.q, a.q_stride, a.q_tokens, a.heads, a.head_dim, kSm90Queries),
                      row_map(name, a.k, a.k_stride, a.k_tokens, a.kv_heads, a.head_dim, kKeys),
                      row_map(name, a.v, a.v_stride, a.k_tokens, a.kv_heads, a.head_dim, kKeys)};
  launch(name, attention_sm90_kernel<Width>,
         Launch{.blocks = multiprocessors(),
                .threads = kSm90Threads,
                .shared = Sm90Tile<Width>::kShared,
                .early = true},
         a, maps);
}

}  // namespace

void attention_sm90(const AttentionArgs& args) {
  if (args.head_dim <= 64) return run<64>(args);
  if (args.head_dim <= 80) return run<80>(args);
  if (args.head_dim <= 128) return run<128>(args);
  run<256>(args);
}

}  // namespace tessera::kernels::cuda

#include "kernels/cuda/attention_sm90.cuh"
#include "kernels/cuda/launch.cuh"

namespace tessera::kernels::cuda {
namespace {

template <int Width, int Groups>
__global__ void __launch_bounds__(Sm90Tile<Width, Groups>::kThreads, 1)
    attention_sm90_kernel(const __grid_constant__ AttentionArgs a,
                          const __grid_constant__ Sm90Maps maps) {
#if TESSERA_WARPGROUPS
  const Sm90Shared<Width, Groups> shared(dynamic_shared());
  if (threadIdx.x == 0) shared.open();
  after_those_before();
  divide<Groups == 3 ? 32 : 24, Groups>([&] { fetch_all<Width, Groups>(a, maps, shared); },
                                        [&] { compute_all<Width, Groups>(a, shared); });
#else
  __trap();
#endif
}

template <int Width, int Groups = 2>
void run(const AttentionArgs& a) {
  using Tile = Sm90Tile<Width, Groups>;
  const char* name = "attention";
  const Sm90Maps maps{
      row_map(name, a.q, a.q_stride, a.q_tokens, a.heads, a.head_dim, Tile::kQueries),
      row_map(name, a.k, a.k_stride, a.k_tokens, a.kv_heads, a.head_dim, Tile::kKeys),
      row_map(name, a.v, a.v_stride, a.k_tokens, a.kv_heads, a.head_dim, Tile::kKeys)};
  launch(name, attention_sm90_kernel<Width, Groups>,
         Launch{.blocks = unspared(multiprocessors()),
                .threads = Tile::kThreads,
                .shared = Tile::kShared,
                .early = true},
         a, maps);
}

}  // namespace

void attention_sm90(const AttentionArgs& args) {
  if (args.head_dim <= 64)
    return narrow_groups(args.q_tokens, args.heads, multiprocessors()) == 3 ? run<64, 3>(args)
                                                                            : run<64, 2>(args);
  if (args.head_dim <= 80) return run<80>(args);
  if (args.head_dim <= 128) return run<128>(args);
  run<256>(args);
}

}  // namespace tessera::kernels::cuda

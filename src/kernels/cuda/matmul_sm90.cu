#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/matmul_sm90.cuh"

namespace tessera::kernels::cuda {
namespace {

template <int N, bool Paired>
__global__ void __launch_bounds__(kSm90Threads, 1)
    matmul_sm90_kernel(const __grid_constant__ Finish finish, const ProductGrid grid,
                       const __grid_constant__ ProductMaps maps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(TESSERA_EMULATED_DEVICE)
  const ProductShared<N> shared(dynamic_shared());
  if (threadIdx.x == 0) shared.open();
  divide([&] { fetch_products<N, Paired>(maps, grid, shared); },
         [&] { compute_products<N, Paired>(finish, grid, shared); });
#endif
}

template <int N, bool Paired>
ProductGrid grid_of(const LibraryProduct& p) {
  const int64_t width = Paired ? N / 2 : N, columns = Paired ? p.n / 2 : p.n;
  return {ceil_div<int64_t>(p.rows, kProductRows), ceil_div(columns, width),
          Paired ? columns : N / 2, static_cast<int>(ceil_div<int64_t>(p.k, kProductDepth))};
}

template <int N, bool Paired>
void run(const LibraryProduct& p, const Finish& finish) {
  const char* name = "matmul";
  const ProductGrid grid = grid_of<N, Paired>(p);
  const ProductMaps maps{
      row_map(name, p.x, p.x_stride, p.rows, 1, static_cast<int>(p.k), kProductRows),
      row_map(name, p.w, p.k, p.n, 1, static_cast<int>(p.k), N / 2)};
  const int64_t tiles = grid.rows * grid.columns, most = multiprocessors();
  launch(name, matmul_sm90_kernel<N, Paired>,
         Launch{.blocks = tiles < most ? tiles : most,
                .threads = kSm90Threads,
                .shared = ProductTile<N>::kShared},
         finish, grid, maps);
}

template <bool Paired>
void run_widest(const LibraryProduct& p, const Finish& finish) {
  const ProductGrid wide = grid_of<256, Paired>(p);
  if (wide.rows * wide.columns >= multiprocessors()) return run<256, Paired>(p, finish);
  run<128, Paired>(p, finish);
}

}  // namespace

void matmul_sm90(const LibraryProduct& p, bool paired, const Finish& finish) {
  paired ? run_widest<true>(p, finish) : run_widest<false>(p, finish);
}

}  // namespace tessera::kernels::cuda

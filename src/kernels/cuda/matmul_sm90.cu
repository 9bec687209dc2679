#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/matmul_sm90.cuh"

namespace tessera::kernels::cuda {
namespace {

// A kernel for each activation: a choice within would be unrolled 128 times.
template <int N, Activation Kind>
__global__ void __launch_bounds__(kSm90Threads, 1)
    matmul_sm90_kernel(const __grid_constant__ Finish finish, const ProductGrid grid,
                       const __grid_constant__ ProductMaps maps) {
#if TESSERA_WARPGROUPS
  const ProductShared<N> shared(dynamic_shared());
  if (threadIdx.x == 0) shared.open();
  divide([&] { fetch_products<N, Kind == Activation::swiglu>(maps, grid, shared); },
         [&] { compute_products<N, Kind>(finish, grid, shared); });
#else
  __trap();
#endif
}

template <int N, bool Paired>
ProductGrid grid_of(const LibraryProduct& p) {
  const int64_t width = Paired ? N / 2 : N, columns = Paired ? p.n / 2 : p.n;
  return {ceil_div<int64_t>(p.rows, kProductRows), ceil_div(columns, width),
          Paired ? columns : N / 2, static_cast<int>(ceil_div<int64_t>(p.k, kProductDepth))};
}

template <int N, Activation Kind>
void run(const LibraryProduct& p, const Finish& finish) {
  const char* name = "matmul";
  const ProductGrid grid = grid_of<N, Kind == Activation::swiglu>(p);
  const ProductMaps maps{
      row_map(name, p.x, p.x_stride, p.rows, 1, static_cast<int>(p.k), kProductRows),
      row_map(name, p.w, p.k, p.n, 1, static_cast<int>(p.k), N / 2)};
  const int64_t tiles = grid.rows * grid.columns, most = multiprocessors();
  launch(name, matmul_sm90_kernel<N, Kind>,
         Launch{.blocks = tiles < most ? tiles : most,
                .threads = kSm90Threads,
                .shared = ProductTile<N>::kShared},
         finish, grid, maps);
}

template <Activation Kind>
void run_widest(const LibraryProduct& p, const Finish& finish) {
  const ProductGrid wide = grid_of<256, Kind == Activation::swiglu>(p);
  if (wide.rows * wide.columns >= multiprocessors()) return run<256, Kind>(p, finish);
  run<128, Kind>(p, finish);
}

}  // namespace

void matmul_sm90(const LibraryProduct& p, const Finish& finish) {
  with_activation(finish.epilogue.activation, [&](auto kind) { run_widest<kind()>(p, finish); });
}

}  // namespace tessera::kernels::cuda

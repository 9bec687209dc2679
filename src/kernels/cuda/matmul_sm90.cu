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
  after_those_before();
  divide([&] { fetch_products<N, Kind == Activation::swiglu>(maps, grid, shared); },
         [&] { compute_products<N, Kind>(finish, grid, shared); });
#else
  __trap();
#endif
}

template <int N, Activation Kind>
void run(const LibraryProduct& p, const Finish& finish) {
  constexpr bool Paired = Kind == Activation::swiglu;
  const char* name = "matmul";
  const int64_t columns = Paired ? p.n / 2 : p.n;
  const ProductGrid grid{ceil_div<int64_t>(p.rows, kProductRows),
                         ceil_div<int64_t>(columns, Paired ? N / 2 : N), Paired ? columns : N / 2,
                         static_cast<int>(ceil_div<int64_t>(p.k, kProductDepth))};
  const ProductMaps maps{
      row_map(name, p.x, p.x_stride, p.rows, 1, static_cast<int>(p.k), kProductRows),
      row_map(name, p.w, p.k, p.n, 1, static_cast<int>(p.k), N / 2)};
  const int64_t tiles = grid.rows * grid.columns, most = multiprocessors();
  launch(name, matmul_sm90_kernel<N, Kind>,
         Launch{.blocks = tiles < most ? tiles : most,
                .threads = kSm90Threads,
                .shared = ProductTile<N>::kShared,
                .early = true},
         finish, grid, maps);
}

}  // namespace

void matmul_sm90(const LibraryProduct& p, const Finish& finish, int width) {
  with_activation(finish.epilogue.activation, [&](auto kind) {
    if (width == 256) return run<256, kind()>(p, finish);
    if (width == 192) return run<192, kind()>(p, finish);
    run<128, kind()>(p, finish);
  });
}

}  // namespace tessera::kernels::cuda

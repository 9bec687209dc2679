#include "kernels/cuda/matmul_sm90.cuh"

namespace tessera::kernels::cuda {

// What kernels call is named: code for other GPUs does not call it.
struct ProductGrid {
  int64_t rows, columns;  ///< tiles
  int64_t second;         ///< from a tile's first rows of w to its second half
  int depth;              ///< blocks of kProductDepth
};
struct ProductPlace {
  int64_t row, column;  ///< of x; of the first half of the rows of w
};

// Neighbours in time share rows of w.
template <int N, bool Paired>
struct ProductWork {
  static constexpr int kFetchRegisters = 24;
  const ProductGrid& grid;
  const ProductMaps& maps;

  template <class F>
  __device__ void each(const F& f) const {
    for (int64_t index = blockIdx.x; index < grid.rows * grid.columns; index += gridDim.x)
      f(ProductPlace{index % grid.rows * kProductRows, index / grid.rows * (Paired ? N / 2 : N)});
  }
  template <class Step>
  __device__ void fetch(const ProductPlace& at, const Step& step) const {
    for (int block = 0; block < grid.depth; ++block)
      step([&](unsigned char* left, unsigned char* right, uint64_t* full) {
        load_box(left, maps.x, full, block * kProductDepth, 0, at.row);
        fetch_weights<N>(right, maps.w, full, block * kProductDepth, at.column,
                         at.column + grid.second);
      });
  }
  __device__ int steps() const { return grid.depth; }
  __device__ int64_t row(const ProductPlace& at, int i) const { return at.row + i; }
};

namespace {

// A kernel for each activation: a choice within would be unrolled 128 times.
template <int N, Activation Kind>
__global__ void __launch_bounds__(kSm90Threads, 1)
    matmul_sm90_kernel(const __grid_constant__ Finish finish, const ProductGrid grid,
                       const __grid_constant__ ProductMaps maps) {
#if TESSERA_WARPGROUPS
  make_tiles<N, Kind>(finish, ProductWork<N, Kind == Activation::swiglu>{grid, maps});
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
  launch(name, matmul_sm90_kernel<N, Kind>, launch_of_tiles<N>(grid.rows * grid.columns), finish,
         grid, maps);
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

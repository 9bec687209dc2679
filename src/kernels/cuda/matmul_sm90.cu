#include "kernels/cuda/matmul_sm90.cuh"

namespace tessera::kernels::cuda {

// Function objects called by kernels are named, because code for other GPUs does not call them.
struct ProductMember {
  ProductMaps maps;
  Finish finish;
  ColumnScales scales;  ///< scales of w in int8
  int64_t rows;         ///< tiles of rows
  int64_t end;          ///< end of the member's tiles in the common numbering
  int64_t second;       ///< offset from a tile's first rows of w to the second half
};
struct ProductGroup {
  ProductMember of[kMostGrouped];
  int64_t tiles;
  int depth;  ///< blocks of kProductDepth
};
struct ProductPlace {
  int member;
  int64_t row, column;  ///< row of x; first row of w
};

// Consecutive tiles share rows of w.
template <int N, Activation Kind, bool Bytes>
struct ProductWork {
  static constexpr int kFetchRegisters = 40;
  static constexpr bool kBytes = Bytes;
  static constexpr bool kPaired = is_paired(Kind);
  const ProductGroup& g;

  template <class F>
  __device__ void each(const F& f) const {
    int64_t begin = 0;
    int at = 0;
    for (int64_t index = blockIdx.x; index < g.tiles; index += gridDim.x) {
      while (index >= g.of[at].end) begin = g.of[at++].end;
      const int64_t rows = g.of[at].rows;
      f(ProductPlace{at, (index - begin) % rows * kProductRows,
                     (index - begin) / rows * (kPaired ? N / 2 : N)});
    }
  }
  template <class Step>
  __device__ void fetch(const ProductPlace& at, const Step& step) const {
    const ProductMember& of = g.of[at.member];
    for (int block = 0; block < g.depth; ++block)
      step([&](const ProductStage& to) {
        load_box(to.left, of.maps.x, to.full, block * kProductDepth, 0, at.row);
        fetch_weights<N, Bytes>(to, of.maps.w, block * kProductDepth, at.column,
                                at.column + of.second);
      });
  }
  __device__ const Finish& finish(const ProductPlace& at) const { return g.of[at.member].finish; }
  __device__ ColumnScales scales(const ProductPlace& at) const { return g.of[at.member].scales; }
  __device__ int steps() const { return g.depth; }
  __device__ int64_t row(const ProductPlace& at, int i) const { return at.row + i; }
};

namespace {

// A separate kernel for each activation: a switch inside would be unrolled 128 times.
template <int N, Activation Kind, Sharing Share, bool Bytes>
__global__ void __launch_bounds__(kSm90Threads, 1)
    matmul_sm90_kernel(const __grid_constant__ ProductGroup group) {
#if TESSERA_WARPGROUPS
  make_tiles<N, Kind, true, Share>(ProductWork<N, Kind, Bytes>{group});
#else
  __trap();
#endif
}

template <int N, Activation Kind, Sharing Share, bool Bytes = false>
void run(std::span<const FinishedProduct> all) {
  constexpr bool kPaired = is_paired(Kind);
  const char* name = "matmul";
  ProductGroup group{};
  group.depth = static_cast<int>(ceil_div<int64_t>(all[0].product.k, kProductDepth));
  for (size_t i = 0; i < all.size(); ++i) {
    const LibraryProduct& p = all[i].product;
    const auto k = static_cast<int>(p.k);
    ProductMember& member = group.of[i];
    member.maps = {
        row_map(name, p.x, p.x_stride, p.rows, 1, k, kProductRows),
        Bytes ? byte_map(name, p.w, p.n, k, N / 2) : row_map(name, p.w, p.k, p.n, 1, k, N / 2)};
    member.finish = all[i].finish;
    if (Bytes) member.scales = {all[i].scales, all[i].scales + p.n / 2};
    member.rows = ceil_div<int64_t>(p.rows, kProductRows);
    member.second = kPaired ? p.n / 2 : N / 2;
    group.tiles += member.rows * ceil_div<int64_t>(p.n, N);
    member.end = group.tiles;
  }
  launch(name, matmul_sm90_kernel<N, Kind, Share, Bytes>, launch_of_tiles<N, Bytes>(group.tiles),
         group);
}

}  // namespace

void matmul_sm90(std::span<const FinishedProduct> all, Tiles tiles) {
  with_activation(all[0].finish.epilogue.activation, [&](auto kind) {
    // Paired sums of 256 rows of w in int8 do not fit the registers.
    if (all[0].scales)
      return run < is_paired(kind()) ? 192 : 256, kind(), Sharing::together, true > (all);
    switch (tiles) {
      case Tiles::in_turn_128: return run<128, kind(), Sharing::in_turn>(all);
      case Tiles::of_192: return run<192, kind(), Sharing::together>(all);
      case Tiles::of_256: return run<256, kind(), Sharing::together>(all);
      default: return run<128, kind(), Sharing::together>(all);
    }
  });
}

}  // namespace tessera::kernels::cuda

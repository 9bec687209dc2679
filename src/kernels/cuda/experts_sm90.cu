#include "kernels/cuda/division.cuh"
#include "kernels/cuda/experts_sm90.h"
#include "kernels/cuda/grouping.cuh"
#include "kernels/cuda/matmul_sm90.cuh"

namespace tessera::kernels::cuda {

// Function objects called by kernels are named, because code for other GPUs does not call them.
template <int Most>
struct ExpertMaps {
  RowMap x;        ///< rows sorted by expert
  RowMap w[Most];  ///< maps of each expert, in boxes of half a tile's rows
};
struct ExpertGrid {
  int first, last;     ///< experts with maps
  int columns, depth;  ///< tiles of rows of w; blocks of kProductDepth
  int planes;          ///< planes of x
  int64_t second;      ///< from a tile's first rows of w to its second half
  int64_t pairs;
  DeviceGroups groups;
  const ExpertPointers* bank;
  bool down;  ///< rows of y are pairs; otherwise sorted by expert
};

// An expert's tiles are consecutive, with tiles of the same rows of w side by side, so that
// operands stay in the cache.
struct ExpertPlace {
  int expert;
  int64_t first, row, count;  ///< the expert's first row; the tile's row; the number of rows
  int64_t column;

  __device__ ExpertPlace(const ExpertGrid& g, int64_t index, int64_t width) {
    expert = expert_of(g.groups, g.first, g.last, static_cast<int>(index / g.columns));
    const int begin = g.groups.tile_begin[expert], tiles = g.groups.tile_begin[expert + 1] - begin;
    const auto local = static_cast<int>(index - int64_t{begin} * g.columns);
    first = g.groups.begin[expert];
    count = g.groups.begin[expert + 1] - first;
    row = int64_t{local % tiles} * kExpertRows;
    column = int64_t{local / tiles} * width;
  }
};

template <int N, bool Paired, bool Bytes, int Most>
struct ExpertWork {
  static constexpr int kFetchRegisters = Bytes ? 40 : 24;
  static constexpr bool kBytes = Bytes;
  const ExpertGrid& g;
  const ExpertMaps<Most>& maps;
  const Finish& after;

  template <class F>
  __device__ void each(const F& f) const {
    const int64_t begin = int64_t{g.groups.tile_begin[g.first]} * g.columns;
    const int64_t end = int64_t{g.groups.tile_begin[g.last]} * g.columns;
    for (int64_t index = begin + blockIdx.x; index < end; index += gridDim.x)
      f(ExpertPlace(g, index, Paired ? N / 2 : N));
  }
  template <class Step>
  __device__ void fetch(const ExpertPlace& at, const Step& step) const {
    for (int plane = 0; plane < g.planes; ++plane)
      for (int block = 0; block < g.depth; ++block)
        step([&](const ProductStage& to) {
          load_box(to.left, maps.x, to.full, block * kProductDepth, 0,
                   plane * g.pairs + at.first + at.row);
          fetch_weights<N, Bytes>(to, maps.w[at.expert - g.first], block * kProductDepth, at.column,
                                  at.column + g.second);
        });
  }
  __device__ ColumnScales scales(const ExpertPlace& at) const {
    const ExpertPointers& expert = g.bank[at.expert];
    if (g.down) return {expert.down_scales, nullptr};
    return {expert.gate_up_scales, expert.gate_up_scales + after.n};
  }
  __device__ const Finish& finish(const ExpertPlace&) const { return after; }
  __device__ int steps() const { return g.planes * g.depth; }
  __device__ int64_t row(const ExpertPlace& at, int i) const {
    if (at.row + i >= at.count) return -1;
    const int64_t sorted = at.first + at.row + i;
    return g.down ? g.groups.pair[sorted] : sorted;
  }
};

template <int N, Activation Kind, bool Bytes, int Most>
__global__ void __launch_bounds__(kSm90Threads, 1)
    expert_products_sm90_kernel(const __grid_constant__ Finish finish, const ExpertGrid grid,
                                const __grid_constant__ ExpertMaps<Most> maps) {
#if TESSERA_WARPGROUPS
  make_tiles<N, Kind>(ExpertWork<N, is_paired(Kind), Bytes, Most>{grid, maps, finish});
#else
  __trap();
#endif
}

namespace {

// Sorts rows of x by expert.
__global__ void __launch_bounds__(kSpreadThreads)
    sort_rows_kernel(const uint4* x, int64_t x_stride, DeviceGroups groups, int64_t experts,
                     int64_t slots, Divisor words, uint32_t first, uint32_t pieces, uint4* y) {
  after_those_before();
  const auto rows = static_cast<uint32_t>(groups.begin[experts]);
  for (uint32_t i = first_small_piece(); i < pieces; i += small_piece_step()) {
    const RowPlace at(i, words);
    const uint32_t row = first + at.row;
    if (row >= rows) return;
    y[int64_t{row} * words.value + at.chunk] = x[groups.pair[row] / slots * x_stride + at.chunk];
  }
}

void sort_rows(const ExpertProducts& p, int64_t pairs) {
  const int64_t words = p.args->hidden / 8;
  for (int64_t plane = 0; plane < p.planes; ++plane) {
    const auto* const from = static_cast<const uint4*>(p.x) + plane * p.x_plane / 8;
    auto* const to = static_cast<uint4*>(p.sorted) + plane * pairs * words;
    each_run_of_rows(pairs, words, [&](int64_t first, int64_t count) {
      launch("experts", sort_rows_kernel, early(spread(count * words)), from, p.x_stride / 8,
             p.groups, p.args->experts, p.args->slots, Divisor(words), static_cast<uint32_t>(first),
             static_cast<uint32_t>(count * words), to);
    });
  }
}

struct Product {
  const void* x;
  int64_t pairs, k;
  int planes;
  bool down;
};

// Multiplies for the experts from `first` on whose maps fit the parameters of a kernel.
template <int N, Activation Kind, bool Bytes, int Most>
void multiply(const ExpertProducts& p, const Product& product, const Finish& finish,
              int64_t first) {
  constexpr bool kPaired = is_paired(Kind);
  const char* name = "experts";
  const ExpertsArgs& a = *p.args;
  const int64_t last = first + Most < a.experts ? first + Most : a.experts;
  const ExpertGrid grid{static_cast<int>(first),
                        static_cast<int>(last),
                        static_cast<int>(ceil_div<int64_t>(finish.n, kPaired ? N / 2 : N)),
                        static_cast<int>(ceil_div<int64_t>(product.k, kProductDepth)),
                        product.planes,
                        kPaired ? finish.n : N / 2,
                        product.pairs,
                        p.groups,
                        p.bank,
                        product.down};
  const auto k = static_cast<int>(product.k);
  ExpertMaps<Most> maps{
      row_map(name, product.x, k, product.planes * product.pairs, 1, k, kExpertRows), {}};
  for (int64_t e = first; e < last; ++e) {
    const PackedWeight& w = product.down ? *a.bank[e].down : *a.bank[e].up;
    const int64_t rows = kPaired ? 2 * w.n : w.n;
    maps.w[e - first] = Bytes ? byte_map(name, w.data.raw(), rows, k, N / 2)
                              : row_map(name, w.data.raw(), k, rows, 1, k, N / 2);
  }
  const int64_t tiles = most_tiles(product.pairs, last - first, kExpertRows) * grid.columns;
  launch(name, expert_products_sm90_kernel<N, Kind, Bytes, Most>, launch_of_tiles<N, Bytes>(tiles),
         finish, grid, maps);
}

template <Activation Kind, bool Bytes>
void multiply_all(const ExpertProducts& p, const Product& product, const Finish& finish) {
  if (p.args->experts <= 16) return multiply<256, Kind, Bytes, 16>(p, product, finish, 0);
  for (int64_t first = 0; first < p.args->experts; first += kExpertMaps)
    multiply<256, Kind, Bytes, kExpertMaps>(p, product, finish, first);
}

template <bool Bytes>
void multiply_both(const ExpertProducts& p, int64_t pairs) {
  const ExpertsArgs& a = *p.args;
  void* const rest = Bytes ? static_cast<std::byte*>(p.inner) + pairs * a.inner * 2 : nullptr;
  multiply_all<Activation::swiglu, Bytes>(
      p, {p.sorted, pairs, a.hidden, p.planes, false},
      {nullptr, 0, pairs, a.inner, {}, p.inner, DType::bf16, a.inner, rest});
  multiply_all<Activation::none, Bytes>(
      p, {p.inner, pairs, a.inner, Bytes ? 2 : 1, true},
      {nullptr, 0, pairs, a.hidden, {}, a.rows, a.dtype, a.hidden});
}

}  // namespace

bool serves_sm90(const ExpertsArgs& a) {
  if (a.dtype == DType::f16) return false;
  const auto fits = [](const PackedWeight& w) {
    const auto k = static_cast<int>(w.k);
    if (w.dtype == DType::i8) return fits_byte_map(w.data.raw(), k) && w.scales.defined();
    return w.dtype == DType::bf16 && fits_row_map(w.data.raw(), w.k, 1, k);
  };
  for (int64_t e = 0; e < a.experts; ++e)
    if (!fits(*a.bank[e].up) || !fits(*a.bank[e].down)) return false;
  return in_words(a.rows, a.dtype, a.hidden);
}

void experts_sm90(const ExpertProducts& p) {
  const ExpertsArgs& a = *p.args;
  const int64_t pairs = a.tokens * a.slots;
  sort_rows(p, pairs);
  a.bank[0].up->dtype == DType::i8 ? multiply_both<true>(p, pairs) : multiply_both<false>(p, pairs);
}

}  // namespace tessera::kernels::cuda

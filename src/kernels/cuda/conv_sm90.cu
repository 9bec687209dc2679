#include "kernels/cuda/conv_sm90.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/matmul_sm90.cuh"

namespace tessera::kernels::cuda {

// What kernels call is named: code for other GPUs does not call it.
// Tiles of box_width x box_height pixels of y: neighbours, or with doubled images every other pixel
// of every other line, so that the pixels of x below them are neighbours. Of one of `phases`^2
// kinds, of an image, of a line of tiles.
struct ImageGrid {
  int64_t tiles, columns;    ///< of pixels; of rows of w
  int phases, across, down;  ///< tiles of a kind
  int box_width, box_height;
  int kh, kw, pad_top, pad_left, channel_blocks, channels;
  int out_height, out_width;
};

// Where a tile lies in y, and rows of w.
struct ImagePlace {
  int image, x, y;  ///< its first pixel in lines and columns of one kind
  int phase_x, phase_y;
  int64_t column;

  __device__ ImagePlace(const ImageGrid& g, int64_t index, int64_t width)
      : column(index / g.tiles * width) {
    auto tile = static_cast<unsigned>(index % g.tiles);
    const auto take = [&](int count) {
      const unsigned whole = tile / static_cast<unsigned>(count);
      const auto part = static_cast<int>(tile - whole * static_cast<unsigned>(count));
      tile = whole;
      return part;
    };
    x = take(g.across) * g.box_width;
    y = take(g.down) * g.box_height;
    phase_x = take(g.phases);
    phase_y = take(g.phases);
    image = static_cast<int>(tile);
  }
};

template <int N, class F>
__device__ inline void each_image_tile(const ImageGrid& grid, const F& f) {
  for (int64_t index = blockIdx.x; index < grid.tiles * grid.columns; index += gridDim.x)
    f(ImagePlace(grid, index, N));
}

// What a tap of a pixel of a kind reads, in pixels of x from the pixel's own.
__device__ inline int read_at(int phase, int tap, int pad, int phases) {
  const int moved = phase + tap - pad;
  return phases == 2 ? moved >> 1 : moved;
}

template <int N>
__device__ inline void fetch_images(const ProductMaps& maps, const ImageGrid& g,
                                    const ProductShared<N>& shared) {
  using Tile = ProductTile<N>;
  int used = 0;
  each_image_tile<N>(g, [&](const ImagePlace& at) {
    for (int tap = 0; tap < g.kh * g.kw; ++tap) {
      const int x = at.x + read_at(at.phase_x, tap % g.kw, g.pad_left, g.phases);
      const int y = at.y + read_at(at.phase_y, tap / g.kw, g.pad_top, g.phases);
      for (int block = 0; block < g.channel_blocks; ++block, ++used) {
        const int s = used % Tile::kStages, channel = block * kProductDepth;
        uint64_t* full = shared.full + s;
        barrier_wait(shared.empty + s, used / Tile::kStages % 2 ^ 1);
        barrier_expect(full, Tile::kLeftBytes + Tile::kRightBytes);
        load_image_box(shared.left + s * Tile::kLeftBytes, maps.x, full, channel, x, y, at.image);
        // Behind the channels of a tap w has the next one's, x zeros.
        fetch_weights<N>(shared.right + s * Tile::kRightBytes, maps.w, full,
                         tap * g.channels + channel, at.column, at.column + N / 2);
      }
    }
  });
}

template <int N, bool Words>
__device__ inline void compute_images(const Finish& f, const ImageGrid& g,
                                      const ProductShared<N>& shared) {
  using Tile = TileFinish<N, Activation::none, Words>;
  int used = 0;
  each_image_tile<N>(g, [&](const ImagePlace& at) {
    Tile finish(f, at.column, [&](int i) {
      const int x = (at.x + i % g.box_width) * g.phases + at.phase_x;
      const int y = (at.y + i / g.box_width) * g.phases + at.phase_y;
      const bool there = x < g.out_width && y < g.out_height;
      return there ? (int64_t{at.image} * g.out_height + y) * g.out_width + x : f.rows;
    });
    float sums[N / 8][4];
    multiply_blocks<N>(sums, shared, g.kh * g.kw * g.channel_blocks, used);
    TESSERA_UNROLL
    for (int part = 0; part < Tile::kParts; ++part) finish.finish(sums, part);
  });
}

template <int N, bool Words>
__global__ void __launch_bounds__(kSm90Threads, 1)
    conv_images_sm90_kernel(const __grid_constant__ Finish finish, const ImageGrid grid,
                            const __grid_constant__ ProductMaps maps) {
#if TESSERA_WARPGROUPS
  const ProductShared<N> shared(dynamic_shared());
  if (threadIdx.x == 0) shared.open();
  after_those_before();
  divide<40>([&] { fetch_images<N>(maps, grid, shared); },
             [&] { compute_images<N, Words>(finish, grid, shared); });
#else
  __trap();
#endif
}

namespace {

// Of those that have 128 pixels, the box that covers the image in the fewest, if alike the
// squarest.
void choose_box(ImageGrid& g, int64_t height, int64_t width) {
  int64_t least = INT64_MAX;
  for (const int box : {16, 8, 32, 64, 128, 4}) {
    const int64_t across = ceil_div<int64_t>(width, box),
                  down = ceil_div<int64_t>(height, kProductRows / box);
    if (across * down >= least) continue;
    least = across * down;
    g.box_width = box;
    g.box_height = kProductRows / box;
    g.across = static_cast<int>(across);
    g.down = static_cast<int>(down);
  }
}

template <int N, bool Words>
void run(const ImageProduct& p, const Finish& finish) {
  const char* name = "conv";
  const auto count = [](int64_t n) { return static_cast<int>(n); };
  ImageGrid grid{.phases = p.doubled ? 2 : 1,
                 .kh = p.kh,
                 .kw = p.kw,
                 .pad_top = p.pad_top,
                 .pad_left = p.pad_left,
                 .channel_blocks = count(ceil_div<int64_t>(p.images.channels, kProductDepth)),
                 .channels = count(p.images.channels),
                 .out_height = count(p.out_height),
                 .out_width = count(p.out_width)};
  choose_box(grid, ceil_div<int64_t>(p.out_height, grid.phases),
             ceil_div<int64_t>(p.out_width, grid.phases));
  grid.tiles = int64_t{grid.across} * grid.down * grid.phases * grid.phases * p.images.images;
  grid.columns = ceil_div<int64_t>(finish.n, N);
  const int64_t length = int64_t{p.kh} * p.kw * p.images.channels;
  const ProductMaps maps{image_map(name, p.x, p.images, grid.box_width, grid.box_height),
                         row_map(name, p.w, length, finish.n, 1, count(length), N / 2)};
  const int64_t all = grid.tiles * grid.columns, most = multiprocessors();
  launch(name, conv_images_sm90_kernel<N, Words>,
         Launch{.blocks = all < most ? all : most,
                .threads = kSm90Threads,
                .shared = ProductTile<N>::kShared,
                .early = true},
         finish, grid, maps);
}

}  // namespace

void conv_sm90(const ImageProduct& p, const Finish& finish) {
  if (!all_in_words(finish)) return run<64, false>(p, finish);
  if (finish.n <= 64) return run<64, true>(p, finish);
  finish.n <= 128 ? run<128, true>(p, finish) : run<256, true>(p, finish);
}

}  // namespace tessera::kernels::cuda

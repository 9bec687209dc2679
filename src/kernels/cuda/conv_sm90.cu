#include "kernels/cuda/conv_sm90.h"
#include "kernels/cuda/matmul_sm90.cuh"

namespace tessera::kernels::cuda {

// Function objects called by kernels are named, because code for other GPUs does not call them.
// Tiles of box_width x box_height pixels of y: neighbours, or with doubled images every other pixel
// of every other line, so that the pixels of x below them are neighbours. Ordered by the `phases`^2
// kinds, image, and line of tiles.
struct ImageGrid {
  int64_t tiles, columns;    ///< tiles of pixels; tiles of rows of w
  int phases, across, down;  ///< tiles of each kind
  int box_width, box_height;
  int kh, kw, pad_top, pad_left, channels;
  int out_height, out_width;
};

// Position of a tile in y and in the rows of w.
struct ImagePlace {
  int image, x, y;  ///< first pixel in lines and columns of its kind
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

// Offset in pixels of x that a tap reads for a pixel of a kind.
__device__ inline int read_at(int phase, int tap, int pad, int phases) {
  const int offset = phase + tap - pad;
  return phases == 2 ? offset >> 1 : offset;
}

template <int N>
struct ImageWork {
  static constexpr int kFetchRegisters = 40;
  static constexpr bool kBytes = false;
  const ImageGrid& g;
  const ProductMaps& maps;
  const Finish& after;

  template <class F>
  __device__ void each(const F& f) const {
    for (int64_t index = blockIdx.x; index < g.tiles * g.columns; index += gridDim.x)
      f(ImagePlace(g, index, N));
  }
  template <class Step>
  __device__ void fetch(const ImagePlace& at, const Step& step) const {
    for (int tap = 0; tap < g.kh * g.kw; ++tap) {
      const int x = at.x + read_at(at.phase_x, tap % g.kw, g.pad_left, g.phases);
      const int y = at.y + read_at(at.phase_y, tap / g.kw, g.pad_top, g.phases);
      for (int channel = 0; channel < g.channels; channel += kProductDepth)
        step([&](const ProductStage& to) {
          load_image_box(to.left, maps.x, to.full, channel, x, y, at.image);
          // Beyond the channels of a tap, w has the next tap's and x has zeros.
          fetch_weights<N>(to, maps.w, tap * g.channels + channel, at.column, at.column + N / 2);
        });
    }
  }
  __device__ const Finish& finish(const ImagePlace&) const { return after; }
  __device__ int steps() const { return g.kh * g.kw * ceil_div(g.channels, kProductDepth); }
  __device__ int64_t row(const ImagePlace& at, int i) const {
    const int x = (at.x + i % g.box_width) * g.phases + at.phase_x;
    const int y = (at.y + i / g.box_width) * g.phases + at.phase_y;
    const bool there = x < g.out_width && y < g.out_height;
    return there ? (int64_t{at.image} * g.out_height + y) * g.out_width + x : -1;
  }
};

template <int N, bool Words>
__global__ void __launch_bounds__(kSm90Threads, 1)
    conv_images_sm90_kernel(const __grid_constant__ Finish finish, const ImageGrid grid,
                            const __grid_constant__ ProductMaps maps) {
#if TESSERA_WARPGROUPS
  make_tiles<N, Activation::none, Words>(ImageWork<N>{grid, maps, finish});
#else
  __trap();
#endif
}

namespace {

// Chooses the box with 128 pixels that covers the image in the fewest boxes; among equals the
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
  launch(name, conv_images_sm90_kernel<N, Words>, launch_of_tiles<N>(grid.tiles * grid.columns),
         finish, grid, maps);
}

}  // namespace

void conv_sm90(const ImageProduct& p, const Finish& finish) {
  if (!all_in_words(finish)) return run<64, false>(p, finish);
  if (finish.n <= 64) return run<64, true>(p, finish);
  finish.n <= 128 ? run<128, true>(p, finish) : run<256, true>(p, finish);
}

}  // namespace tessera::kernels::cuda

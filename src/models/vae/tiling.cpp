#include "models/vae/tiling.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "tensor/shape_format.h"

namespace tessera::models {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

int64_t tiles_along(int64_t side, int64_t step) { return (side + step - 1) / step; }

// The same shape with other last two sizes.
Shape resized(const Shape& shape, int64_t height, int64_t width) {
  std::vector<int64_t> sizes(shape.begin(), shape.end());
  sizes[sizes.size() - 2] = height;
  sizes.back() = width;
  return Shape(sizes);
}

// A dense tensor as planes [count, height, width].
struct Planes {
  explicit Planes(const Tensor& x)
      : data(x.data<float>()),
        height(x.size(x.rank() - 2)),
        width(x.size(x.rank() - 1)),
        count(height * width > 0 ? x.elements() / (height * width) : 0) {}
  float* line(int64_t plane, int64_t y) const { return data + (plane * height + y) * width; }
  float* data;
  int64_t height, width, count;
};

// Fades the first lines of `below` in from the last lines of `above`.
void blend_down(const Tensor& above, const Tensor& below, int64_t extent) {
  const Planes a(above), b(below);
  extent = std::min({extent, a.height, b.height});
  for (int64_t c = 0; c < b.count; ++c)
    for (int64_t y = 0; y < extent; ++y) {
      const auto in = static_cast<float>(double(y) / double(extent));
      const auto out = static_cast<float>(1 - double(y) / double(extent));
      const float* const from = a.line(c, a.height - extent + y);
      float* const to = b.line(c, y);
      for (int64_t x = 0; x < b.width; ++x) to[x] = from[x] * out + to[x] * in;
    }
}

void blend_right(const Tensor& left, const Tensor& right, int64_t extent) {
  const Planes a(left), b(right);
  extent = std::min({extent, a.width, b.width});
  for (int64_t c = 0; c < b.count; ++c)
    for (int64_t y = 0; y < b.height; ++y) {
      const float* const from = a.line(c, y) + a.width - extent;
      float* const to = b.line(c, y);
      for (int64_t x = 0; x < extent; ++x)
        to[x] = from[x] * static_cast<float>(1 - double(x) / double(extent)) +
                to[x] * static_cast<float>(double(x) / double(extent));
    }
}

// Copies the corner of a tile not covered by later tiles into the whole.
void paste(const Tensor& tile, const Tensor& whole, int64_t top, int64_t left, int64_t most_lines,
           int64_t most_columns) {
  const Planes from(tile), to(whole);
  const int64_t lines = std::min(from.height, most_lines);
  const int64_t columns = std::min(from.width, most_columns);
  for (int64_t c = 0; c < from.count; ++c)
    for (int64_t y = 0; y < lines; ++y)
      std::copy_n(from.line(c, y), columns, to.line(c, top + y) + left);
}

using Pass = std::function<Tensor(const Tensor&)>;

/// Tiles of a tensor, row by row from the top, and their results.
class Mosaic {
 public:
  /// `in` and `out`: tiles of the input and of the output.
  Mosaic(const Tensor& x, const Tiling& in, const Tiling& out, int64_t height, int64_t width,
         const Pass& pass)
      : x_(x), in_(in), out_(out), height_(height), width_(width), pass_(pass) {}

  // Computes tile (i, j), not blended yet.
  Tensor tile(int64_t i, int64_t j) const {
    const int axis = x_.rank() - 2;
    const int64_t top = i * in_.height.step, left = j * in_.width.step;
    const int64_t bottom = std::min(x_.size(axis), top + in_.height.size);
    const int64_t right = std::min(x_.size(axis + 1), left + in_.width.size);
    return pass_(x_.slice(axis, top, bottom).slice(axis + 1, left, right).contiguous());
  }
  void blend(const std::vector<Tensor>& above, const std::vector<Tensor>& row,
             const Tensor& tile) const {
    if (tile.is_meta()) return;
    const auto lap = [](const TileSide& side) { return side.size - side.step; };
    if (!above.empty()) blend_down(above[row.size()], tile, lap(out_.height));
    if (!row.empty()) blend_right(row.back(), tile, lap(out_.width));
  }
  void put(const Tensor& tile, int64_t i, int64_t j) {
    if (!whole_.defined())
      whole_ = Tensor::empty(resized(tile.shape(), height_, width_), DType::f32, tile.device());
    if (!tile.is_meta())
      paste(tile, whole_, i * out_.height.step, j * out_.width.step, out_.height.step,
            out_.width.step);
  }
  Tensor whole() const { return whole_; }

 private:
  const Tensor& x_;
  const Tiling &in_, &out_;
  int64_t height_, width_;  // size of the output
  const Pass& pass_;
  Tensor whole_;
};

Tiling times(const Tiling& tiling, int64_t factor) {
  const auto side = [&](const TileSide& s) { return TileSide{s.size * factor, s.step * factor}; };
  return {side(tiling.height), side(tiling.width)};
}

// Two rows on meta: later rows need no more memory than the second.
int64_t rows_of(const Tensor& x, int64_t height, const TileSide& side) {
  const int64_t rows = tiles_along(height, side.step);
  return x.is_meta() ? std::min<int64_t>(rows, 2) : rows;
}

Tensor run_tiles(Mosaic& mosaic, int64_t rows, int64_t columns,
                 const std::function<void(int done, int count)>& piece) {
  std::vector<Tensor> above;
  for (int64_t i = 0; i < rows; ++i) {
    std::vector<Tensor> row;
    for (int64_t j = 0; j < columns; ++j) {
      const Tensor tile = mosaic.tile(i, j);
      mosaic.blend(above, row, tile);
      mosaic.put(tile, i, j);
      row.push_back(tile);
      if (piece) piece(static_cast<int>(i * columns + j + 1), static_cast<int>(rows * columns));
    }
    above = std::move(row);
  }
  return mosaic.whole();
}

void check_tiles(const Tensor& x, const Tiling& tiling) {
  require(x.rank() >= 4 && tiling.height.step > 0 && tiling.width.step > 0, ErrorCode::usage,
          "a tensor {} cannot be cut into tiles of {} x {}", x.shape(), tiling.width.size,
          tiling.height.size);
}

}  // namespace

bool Tiling::covers(const Tensor& latents) const {
  return latents.size(latents.rank() - 2) <= height.size &&
         latents.size(latents.rank() - 1) <= width.size;
}

TileSide tile_side(int64_t pixels, int64_t factor, double overlap) {
  const int64_t size = std::max<int64_t>(pixels / factor, 1);
  return {size, std::max<int64_t>(static_cast<int64_t>(double(size) * (1 - overlap)), 1)};
}

Tensor decode_tiles(const Tensor& latents, int64_t factor, const Tiling& tiling, const Pass& decode,
                    const std::function<void(int done, int count)>& piece) {
  check_tiles(latents, tiling);
  if (tiling.covers(latents)) return decode(latents);
  const int64_t height = latents.size(latents.rank() - 2), width = latents.size(latents.rank() - 1);
  const Tiling out = times(tiling, factor);
  Mosaic mosaic(latents, tiling, out, height * factor, width * factor, decode);
  return run_tiles(mosaic, rows_of(latents, height, tiling.height),
                   tiles_along(width, tiling.width.step), piece);
}

Tensor encode_tiles(const Tensor& images, int64_t factor, const Tiling& tiling,
                    const Pass& encode) {
  check_tiles(images, tiling);
  const Tiling in = times(tiling, factor);
  if (in.covers(images)) return encode(images);
  const int64_t height = images.size(images.rank() - 2), width = images.size(images.rank() - 1);
  require(height % factor == 0 && width % factor == 0, ErrorCode::usage,
          "images of {} x {} pixels (width x height) are no multiple of {}, which tiles need",
          width, height, factor);
  Mosaic mosaic(images, in, tiling, height / factor, width / factor, encode);
  return run_tiles(mosaic, rows_of(images, height, in.height), tiles_along(width, in.width.step),
                   {});
}

}  // namespace tessera::models

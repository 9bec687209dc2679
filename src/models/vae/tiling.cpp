#include "models/vae/tiling.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/fail.h"

namespace tessera::models {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

int64_t tiles_along(int64_t side, int64_t step) { return (side + step - 1) / step; }

// The same axes, the last two of another size.
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

// The first lines of `below` fade from the last lines of `above`.
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

// The corner of a tile that no later tile covers, at its place in the whole.
void paste(const Tensor& tile, const Tensor& whole, int64_t top, int64_t left, int64_t most_lines,
           int64_t most_columns) {
  const Planes from(tile), to(whole);
  const int64_t lines = std::min(from.height, most_lines);
  const int64_t columns = std::min(from.width, most_columns);
  for (int64_t c = 0; c < from.count; ++c)
    for (int64_t y = 0; y < lines; ++y)
      std::copy_n(from.line(c, y), columns, to.line(c, top + y) + left);
}

/// Tiles of one latent, in rows from the top.
class Mosaic {
 public:
  Mosaic(const Tensor& latents, int64_t factor, const Tiling& tiling,
         const std::function<Tensor(const Tensor&)>& decode)
      : latents_(latents), factor_(factor), tiling_(tiling), decode_(decode) {}

  // The blended tile; on meta equal tiles are decoded once.
  Tensor tile(int64_t top, int64_t left) {
    const int axis = latents_.rank() - 2;
    const int64_t bottom = std::min(latents_.size(axis), top + tiling_.height.size);
    const int64_t right = std::min(latents_.size(axis + 1), left + tiling_.width.size);
    const Tensor part = latents_.slice(axis, top, bottom).slice(axis + 1, left, right).contiguous();
    if (!latents_.is_meta()) return decode_(part);
    const auto known = shapes_.find({bottom - top, right - left});
    if (known != shapes_.end()) return Tensor::empty(known->second, DType::f32, latents_.device());
    const Tensor made = decode_(part);
    shapes_.emplace(std::pair{bottom - top, right - left}, made.shape());
    return made;
  }
  void blend(const std::vector<Tensor>& above, const std::vector<Tensor>& row,
             const Tensor& tile) const {
    if (tile.is_meta()) return;
    const auto lap = [&](const TileSide& side) { return (side.size - side.step) * factor_; };
    if (!above.empty()) blend_down(above[row.size()], tile, lap(tiling_.height));
    if (!row.empty()) blend_right(row.back(), tile, lap(tiling_.width));
  }
  void put(const Tensor& tile, int64_t top, int64_t left) {
    const int axis = latents_.rank() - 2;
    if (!whole_.defined())
      whole_ = Tensor::empty(
          resized(tile.shape(), latents_.size(axis) * factor_, latents_.size(axis + 1) * factor_),
          DType::f32, tile.device());
    if (!tile.is_meta())
      paste(tile, whole_, top * factor_, left * factor_, tiling_.height.step * factor_,
            tiling_.width.step * factor_);
  }
  Tensor whole() const { return whole_; }

 private:
  const Tensor& latents_;
  int64_t factor_;
  const Tiling& tiling_;
  const std::function<Tensor(const Tensor&)>& decode_;
  std::map<std::pair<int64_t, int64_t>, Shape> shapes_;
  Tensor whole_;
};

}  // namespace

bool Tiling::covers(const Tensor& latents) const {
  return latents.size(latents.rank() - 2) <= height.size &&
         latents.size(latents.rank() - 1) <= width.size;
}

TileSide tile_side(int64_t pixels, int64_t factor, double overlap) {
  const int64_t size = std::max<int64_t>(pixels / factor, 1);
  return {size, std::max<int64_t>(static_cast<int64_t>(double(size) * (1 - overlap)), 1)};
}

Tensor decode_tiles(const Tensor& latents, int64_t factor, const Tiling& tiling,
                    const std::function<Tensor(const Tensor& tile)>& decode,
                    const std::function<void(int done, int count)>& piece) {
  require(latents.rank() >= 4 && tiling.height.step > 0 && tiling.width.step > 0, ErrorCode::usage,
          "latents {} cannot be cut into tiles of {} x {}", latents.shape().str(),
          tiling.width.size, tiling.height.size);
  if (tiling.covers(latents)) return decode(latents);
  const int64_t rows = tiles_along(latents.size(latents.rank() - 2), tiling.height.step);
  const int64_t columns = tiles_along(latents.size(latents.rank() - 1), tiling.width.step);
  Mosaic mosaic(latents, factor, tiling, decode);
  std::vector<Tensor> above;
  for (int64_t i = 0; i < rows; ++i) {
    std::vector<Tensor> row;
    for (int64_t j = 0; j < columns; ++j) {
      const int64_t top = i * tiling.height.step, left = j * tiling.width.step;
      const Tensor tile = mosaic.tile(top, left);
      mosaic.blend(above, row, tile);
      mosaic.put(tile, top, left);
      row.push_back(tile);
      if (piece) piece(static_cast<int>(i * columns + j + 1), static_cast<int>(rows * columns));
    }
    above = std::move(row);
  }
  return mosaic.whole();
}

}  // namespace tessera::models

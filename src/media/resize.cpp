#include "media/resize.h"

#include <algorithm>
#include <vector>

#include "base/fail.h"

namespace tessera::media {
namespace {

using tensor::DType;
using tensor::Tensor;

// Source lines of a result line, and the interpolation weight.
struct Place {
  int64_t below, above;
  float part;
};

// Positions for [begin, begin + count) of a side scaled from `from` to `to`.
std::vector<Place> places(int64_t from, int64_t to, int64_t begin, int64_t count) {
  const float scale = static_cast<float>(from) / static_cast<float>(to);
  std::vector<Place> result;
  for (int64_t i = begin; i < begin + count; ++i) {
    const float at = std::max((static_cast<float>(i) + 0.5f) * scale - 0.5f, 0.0f);
    const int64_t below = std::min(static_cast<int64_t>(at), from - 1);
    result.push_back({below, std::min(below + 1, from - 1), at - static_cast<float>(below)});
  }
  return result;
}

}  // namespace

Tensor resize_and_crop(const Tensor& x, int64_t height, int64_t width) {
  require(x.rank() == 3 && x.dtype() == DType::f32 && x.elements() > 0 && height > 0 && width > 0,
          ErrorCode::usage, "an image {} {} cannot become {} x {}; expected f32 [channels, H, W]",
          name_of(x.dtype()), x.shape().str(), width, height);
  if (x.size(1) == height && x.size(2) == width) return x;
  const double ratio =
      std::max(double(height) / double(x.size(1)), double(width) / double(x.size(2)));
  // Rounding might lose the last pixel of a side with an exact fit.
  const int64_t tall = std::max(static_cast<int64_t>(double(x.size(1)) * ratio), height);
  const int64_t wide = std::max(static_cast<int64_t>(double(x.size(2)) * ratio), width);
  const auto lines = places(x.size(1), tall, (tall - height) / 2, height);
  const auto columns = places(x.size(2), wide, (wide - width) / 2, width);
  const Tensor from = x.contiguous();
  Tensor y = Tensor::empty({x.size(0), height, width}, DType::f32);
  for (int64_t c = 0; c < x.size(0); ++c)
    for (size_t i = 0; i < lines.size(); ++i) {
      const float* const plane = from.data<float>() + c * x.size(1) * x.size(2);
      const float* const a = plane + lines[i].below * x.size(2);
      const float* const b = plane + lines[i].above * x.size(2);
      const float down = lines[i].part;
      float* const to = y.data<float>() + (c * height + static_cast<int64_t>(i)) * width;
      for (size_t j = 0; j < columns.size(); ++j) {
        const auto& [l, r, right] = columns[j];
        to[j] = (1 - down) * ((1 - right) * a[l] + right * a[r]) +
                down * ((1 - right) * b[l] + right * b[r]);
      }
    }
  return y;
}

}  // namespace tessera::media

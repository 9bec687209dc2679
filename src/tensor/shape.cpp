#include "tensor/shape.h"

#include <algorithm>

#include "base/fail.h"

namespace tessera::tensor {

Shape::Shape(std::initializer_list<int64_t> sizes)
    : Shape(std::span<const int64_t>(sizes.begin(), sizes.size())) {}

Shape::Shape(std::span<const int64_t> sizes) {
  require(sizes.size() <= kMaxRank, ErrorCode::usage,
          "a tensor with {} axes was asked for; at most {} are possible", sizes.size(), kMaxRank);
  int64_t product = 1;
  for (int64_t size : sizes) {
    require(size >= 0, ErrorCode::usage, "a tensor axis of negative size {} was asked for", size);
    const bool fits = !__builtin_mul_overflow(product, std::max<int64_t>(size, 1), &product);
    require(fits && product <= int64_t{1} << 62, ErrorCode::memory,
            "a tensor with more than 2^62 elements was asked for; use smaller sizes");
    sizes_[static_cast<size_t>(rank_++)] = size;
  }
}

int Shape::axis_index(int axis) const {
  const int index = axis < 0 ? axis + rank_ : axis;
  if (index < 0 || index >= rank_)  // a message is built only on failure: this code is hot
    fail(ErrorCode::usage, "axis {} is outside the shape {}", axis, str());
  return index;
}

int64_t Shape::operator[](int axis) const { return sizes_[static_cast<size_t>(axis_index(axis))]; }

int64_t Shape::elements() const {
  int64_t product = 1;
  for (int64_t size : *this) product *= size;
  return product;
}

Shape Shape::with(int axis, int64_t size) const {
  Shape result = *this;
  result.sizes_[static_cast<size_t>(axis_index(axis))] = size;
  return Shape(std::span<const int64_t>(result.begin(), result.end()));
}

bool Shape::operator==(const Shape& other) const {
  return std::equal(begin(), end(), other.begin(), other.end());
}

std::string Shape::str() const { return fmt::format("[{}]", fmt::join(begin(), end(), ", ")); }

}  // namespace tessera::tensor

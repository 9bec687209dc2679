#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace tessera::tensor {

/// Sizes of the axes of a tensor, outermost first; up to 6 axes, each >= 0.
class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;
  /// Throws Error(usage) for more than kMaxRank axes, a negative size or more than 2^62 elements.
  Shape(std::initializer_list<int64_t> sizes);
  explicit Shape(std::span<const int64_t> sizes);

  int rank() const { return rank_; }
  /// Size of an axis; a negative index counts from the end. Throws Error(usage) out of range.
  int64_t operator[](int axis) const;
  /// Product of all sizes (1 for rank 0).
  int64_t elements() const;
  /// The same shape with another size of an axis.
  Shape with(int axis, int64_t size) const;
  const int64_t* begin() const { return sizes_.data(); }
  const int64_t* end() const { return sizes_.data() + rank_; }
  bool operator==(const Shape& other) const;
  /// "[2, 16, 128]"
  std::string str() const;

 private:
  int axis_index(int axis) const;
  std::array<int64_t, kMaxRank> sizes_{};
  int rank_ = 0;
};

}  // namespace tessera::tensor

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tessera::kernels::cuda {

/// Rows of heads in device memory for the TMA copy engine of sm_90: a tensor map of [rows, heads,
/// head_dim], in boxes of `box` rows and 64 channels of a head.
struct alignas(64) RowMap {
  unsigned char bytes[128];
};

/// Arguments of cuTensorMapEncodeTiled, innermost first; strides in bytes. Only the first `rank`
/// are used. Elements are bf16 with a 128-byte swizzle in shared memory, or bytes without swizzle.
struct MapShape {
  int rank;
  std::array<uint64_t, 4> sizes;
  std::array<uint64_t, 3> strides;
  std::array<uint32_t, 4> box;
  int element = 2;  ///< bytes of an element
};
constexpr MapShape row_map_shape(int64_t stride, int64_t rows, int heads, int head_dim, int box) {
  const auto row = static_cast<uint64_t>(stride) * 2;
  // A single head has no next head, so any stride is valid; uses a divisor of the next dimension's
  // stride.
  return {3,
          {static_cast<uint64_t>(head_dim), static_cast<uint64_t>(heads),
           static_cast<uint64_t>(rows > 1 ? rows : 1)},
          {heads == 1 ? row : static_cast<uint64_t>(head_dim) * 2, row},
          {64, 1, static_cast<uint32_t>(box)}};
}
/// Dense rows of k bytes, in boxes of `box` rows and 64 bytes.
constexpr MapShape byte_map_shape(int64_t rows, int k, int box) {
  const auto row = static_cast<uint64_t>(k);
  return {
      3, {row, 1, static_cast<uint64_t>(rows)}, {row, row}, {64, 1, static_cast<uint32_t>(box)}, 1};
}
/// Images [images, height, width, channels], `stride` elements apart and otherwise dense, in boxes
/// of 64 channels of neighbouring pixels.
struct Images {
  int64_t stride, images, height, width, channels;
};
constexpr MapShape image_map_shape(const Images& x, int box_width, int box_height) {
  const auto size = [](int64_t n) { return static_cast<uint64_t>(n); };
  const uint64_t line = size(x.width * x.channels) * 2;
  return {4,
          {size(x.channels), size(x.width), size(x.height), size(x.images)},
          {size(x.channels) * 2, line, x.images == 1 ? line * size(x.height) : size(x.stride) * 2},
          {64, static_cast<uint32_t>(box_width), static_cast<uint32_t>(box_height), 1}};
}

/// Problem of a map according to the driver's documentation (no interleave); null: valid.
constexpr const char* wrong_with(const MapShape& map, uintptr_t address) {
  if (address % 16 != 0) return "its address is no multiple of 16 bytes";
  const auto rank = static_cast<size_t>(map.rank);
  for (size_t i = 0; i < rank; ++i)
    if (const uint64_t size = map.sizes[i]; size == 0 || size > uint64_t{1} << 32)
      return "a size is not in 1 to 2^32";
  const auto element = static_cast<uint64_t>(map.element);
  uint64_t least = map.sizes[0] * element, last = 1;
  for (size_t i = 0; i + 1 < rank; ++i) {
    const uint64_t stride = map.strides[i];
    if (stride % 16 != 0) return "a stride is no multiple of 16 bytes";
    if (stride >= uint64_t{1} << 40) return "a stride is 2^40 bytes or more";
    if (stride < least) return "a stride is less than what it steps over";
    if (stride % last != 0) return "a stride is no multiple of the one before";
    least = last = stride;
  }
  for (size_t i = 0; i < rank; ++i)
    if (const uint32_t box = map.box[i]; box == 0 || box > 256)
      return "a side of its boxes is not in 1 to 256";
  if (map.box[0] * element % 16 != 0) return "a line of its boxes is no multiple of 16 bytes";
  return map.box[0] * element <= 128 ? nullptr : "its boxes are wider than the swizzle";
}

/// True if heads of these rows can be fetched as boxes.
inline bool fits_row_map(const void* data, int64_t stride, int heads, int head_dim) {
  return wrong_with(row_map_shape(stride, 1, heads, head_dim, 1),
                    reinterpret_cast<uintptr_t>(data)) == nullptr;
}

/// Same for dense rows of k bytes.
inline bool fits_byte_map(const void* data, int k) {
  return wrong_with(byte_map_shape(1, k, 1), reinterpret_cast<uintptr_t>(data)) == nullptr;
}

/// `stride` in elements from row to row; see wrong_with() for valid values. Throws Error(usage) for
/// invalid strides, driver errors, or a driver without tensor maps.
RowMap row_map(const char* kernel, const void* data, int64_t stride, int64_t rows, int heads,
               int head_dim, int box);
/// Map of rows of bytes, see byte_map_shape(); throws as row_map() does.
RowMap byte_map(const char* kernel, const void* data, int64_t rows, int k, int box);
/// Map of images, see image_map_shape(); throws as row_map() does.
RowMap image_map(const char* kernel, const void* data, const Images& x, int box_width,
                 int box_height);

}  // namespace tessera::kernels::cuda

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tensor/block_format.h"

namespace tessera::load {

/// A tensor of a file: the logical elements, and their location and format in the file.
struct TensorEntry {
  std::string dtype;           ///< dtype of the elements: "F32", "BF16", ...
  std::vector<int64_t> sizes;  ///< outermost first; empty: a scalar
  int64_t begin = 0, end = 0;  ///< byte range from the start of the data
  /// Format of the stored bytes; none: plain elements. In a block format each row is whole blocks.
  std::optional<tensor::BlockFormat> format{};
  /// Scale factors after decoding the format: one for the tensor, or one for each row; null: none.
  std::shared_ptr<const std::vector<float>> scales{};
  bool halves_swapped = false;  ///< the second half of the rows comes first in the file
  bool drops_ones = false;      ///< leading sizes of 1 may be missing, as in ggml

  /// True if the tensor has these sizes.
  bool has_sizes(std::span<const int64_t> expected) const;
  /// Bytes of the expanded elements.
  int64_t bytes() const;
  int64_t stored_bytes() const { return end - begin; }
  int64_t elements() const;
  /// Elements of a row, along the last axis.
  int64_t row_elements() const { return sizes.empty() ? 1 : sizes.back(); }
};

/// Rows [from, until) of a tensor with two axes, or elements of a tensor with a single axis. Throws
/// Error(usage) for other tensors and for rows out of range.
TensorEntry rows_of(const TensorEntry& whole, int64_t from, int64_t until);

/// A checked header: every entry lies in the data, and its bytes fit type and shape.
struct FileHeader {
  std::map<std::string, TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
  int64_t data_offset = 0;  ///< offset of the data in the file
};

}  // namespace tessera::load

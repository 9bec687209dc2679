#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "kernels/packed_weight.h"

namespace tessera::kernels {

/// A stored matrix whose rows are read while it is packed: they pass memory once less.
struct StoredRows {
  StoredMatrix matrix{};  ///< values on meta
  /// Copies rows [first, first + rows) to `to`, from several threads at once; null: they are in
  /// `matrix`.
  std::function<void(int64_t first, int64_t rows, std::byte* to)> read{};
};

/// pack_weight() of such rows, floats or i8, into panels: for `avx2` and above. Each row is read
/// once. Throws Error(usage) for `reference`, and what `read` throws.
PackedWeight pack_rows(const StoredRows& w, const StoredRows& up, tensor::DType dtype, Isa isa);

}  // namespace tessera::kernels

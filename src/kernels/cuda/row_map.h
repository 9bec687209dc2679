#pragma once

#include <cstdint>

namespace tessera::kernels::cuda {

/// Rows of bf16 heads in device memory, as the copy engine of sm_90 reads them: a tensor map of
/// [rows, heads, head_dim], in boxes of `box` rows and 64 channels of one head.
struct alignas(64) RowMap {
  unsigned char bytes[128];
};

/// `stride` in elements from row to row; it, head_dim and the address are multiples of 16 bytes.
/// Throws Error(usage) where the driver has no such maps, or refuses one.
RowMap row_map(const char* kernel, const void* data, int64_t stride, int64_t rows, int heads,
               int head_dim, int box);

}  // namespace tessera::kernels::cuda

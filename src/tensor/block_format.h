#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::tensor {

/// How files hold floats in fewer bits. A block is a run of elements of a row that share scales, as
/// ggml defines its types; of the first three it is one element.
enum class BlockFormat : uint8_t {
  fp8_e4m3,  ///< float8_e4m3fn: no infinity, 448 is the largest
  fp8_e5m2,  ///< float8_e5m2
  int8,      ///< whole numbers, whose scale stands in another tensor
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl,
  iq4_xs
};

/// Elements and bytes of one block.
struct BlockSize {
  int64_t elements, bytes;
};
BlockSize block_size(BlockFormat format);
/// "Q4_K", "F8_E4M3", ... as files spell it.
const char* name_of(BlockFormat format);

/// Writes the elements of `blocks` blocks, from `from` on, as floats: bit by bit what the reference
/// implementation of the format gives. Returns false if a scale, or an element of the float8
/// formats, is infinite or no number.
bool expand_blocks(BlockFormat format, const std::byte* from, int64_t blocks, float* to);

}  // namespace tessera::tensor

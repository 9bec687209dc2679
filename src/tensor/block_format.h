#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::tensor {

/// Compressed forms of floats in files. A block is a run of elements of a row with common scales,
/// as in ggml's types; in the first three formats a block is a single element.
enum class BlockFormat : uint8_t {
  fp8_e4m3,  ///< float8_e4m3fn: no infinity, 448 is the largest
  fp8_e5m2,  ///< float8_e5m2
  int8,      ///< integers with scales in another tensor
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

/// Elements and bytes of a block.
struct BlockSize {
  int64_t elements, bytes;
};
BlockSize block_size(BlockFormat format);
/// "Q4_K", "F8_E4M3", ... in the spelling of files.
const char* name_of(BlockFormat format);

/// Writes the elements of `blocks` blocks from `from` as floats, bit-identical to the format's
/// reference implementation. Returns false if a scale, or an element of a float8 format, is
/// infinite or NaN.
bool expand_blocks(BlockFormat format, const std::byte* from, int64_t blocks, float* to);

}  // namespace tessera::tensor

#pragma once

#include <string>

#include "load/tensor_file.h"
#include "ops/matmul.h"

namespace tessera::load {

/// Whether a matrix of a file is in Q4_0 of ggml, whose blocks are the groups of kernels/nibbles.h.
bool has_nibble_blocks(const TensorEntry& entry);
/// Such a matrix [n, k] in nibbles: the file's whole numbers, and its scales in bf16, each off by
/// 2^-8 of itself at most. Not counted as memory. Throws Error(model) for a scale that is infinite
/// or no number.
ops::StoredMatrix nibbles_of(const TensorFile& file, const std::string& name);

}  // namespace tessera::load

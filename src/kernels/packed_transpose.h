#pragma once

#include "kernels/packed_weight.h"

namespace tessera::kernels {

/// Packs the transpose of a table [k, n] of floats for products in f32 or bf16, in tiles: nothing
/// else of its size is held. On meta only the shape is kept. Counted as weights. Throws
/// Error(usage).
PackedWeight pack_transposed(const tensor::Tensor& table, tensor::DType dtype, Isa isa);

}  // namespace tessera::kernels

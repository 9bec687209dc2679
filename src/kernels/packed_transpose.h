#pragma once

#include "kernels/packed_weight.h"

namespace tessera::kernels {

/// The transpose of a table [k, n] of floats as a weight for products in f32 or bf16. For `avx2`
/// and above it is the table itself, as stored: products pack a part of it at a time. For
/// `reference` it is a row major copy, made in tiles and counted as weights. On meta only the shape
/// is kept. Throws Error(usage).
PackedWeight pack_transposed(const tensor::Tensor& table, tensor::DType dtype, Isa isa);

/// True if `data` is such a table [k, n], and not panels.
bool is_table(const PackedWeight& weight);

/// Packs `steps` steps of a panel of a table, from step `first` on.
void pack_steps(const PackedWeight& table, int64_t panel, int64_t first, int64_t steps,
                std::byte* out);

}  // namespace tessera::kernels

#pragma once

#include "kernels/avx512/product.h"

namespace tessera::kernels::amx {

/// Tile products of bf16; f32 weights use other engines.
const avx512::Engine& engine();
/// Tile products for PackedWeight::int8_rows: they compute the integers of the reference.
const avx512::Engine& int8_engine();
const avx512::Engine& int4_engine();
/// Tiles for bf16 weights and int8 rows, the engines of AVX-512 for others.
const avx512::Engine& engine_for(const PackedWeight& weight);

}  // namespace tessera::kernels::amx

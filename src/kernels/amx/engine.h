#pragma once

#include "kernels/avx512/product.h"

namespace tessera::kernels::amx {

/// Tile products of bf16; f32 weights use other engines.
const avx512::Engine& engine();
/// Tiles for bf16 weights, the engines of AVX-512 for others.
const avx512::Engine& engine_for(const PackedWeight& weight);

}  // namespace tessera::kernels::amx

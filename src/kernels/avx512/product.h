#pragma once

#include "kernels/wide/product.h"

// The engines of AVX-512 over the shared code of kernels/wide.
namespace tessera::kernels::avx512 {

using namespace wide;

/// Fused multiply-adds of f32; bf16 weights are widened in registers, or once for many rows.
const Engine& multiply_add_engine();
/// Dot products of AVX512_BF16. f32 weights take multiply-adds here too.
const Engine& dot_engine();
/// The engine for active_bf16_path().
const Engine& engine();
/// VNNI, only for i8 weights. A row is rounded to integers with maximum 32,639; products with the
/// weights are exact.
const Engine& digit_engine();
/// Same for int4 (kernels/nibbles.h): exact sums in a group, f32 sums over groups.
const Engine& nibble_engine();
/// Engines for PackedWeight::int8_rows, with VNNI: int8 and int4 weights. They compute the same
/// integers as the reference: exact sums for int8, exact sums of each group for int4.
const Engine& int8_engine();
const Engine& int4_engine();
/// engine(), or for i8 weights an engine above.
const Engine& engine_for(const PackedWeight& weight);

/// Row kernels in vectors of AVX-512.
const wide::RowKernels& row_kernels();

}  // namespace tessera::kernels::avx512

#pragma once

#include "kernels/wide/product.h"

// The products of AVX-512: engines over what kernels/wide shares.
namespace tessera::kernels::avx512 {

using namespace wide;

/// Fused multiply-adds of f32; bf16 weights are widened in registers, or once for many rows.
const Engine& multiply_add_engine();
/// Dot products of AVX512_BF16. f32 weights take multiply-adds here too.
const Engine& dot_engine();
/// That of active_unit().
const Engine& engine();
/// VNNI for i8 weights, and those alone: a row is rounded to whole numbers up to 32,639, which its
/// largest magnitude becomes; their products with the weights are exact.
const Engine& digit_engine();
/// The same for nibbles (kernels/nibbles.h): sums of a group are exact, those of groups in f32.
const Engine& nibble_engine();
/// Engines for PackedWeight::int8_rows, with VNNI: int8 and int4 weights. They compute the same
/// integers as the reference: exact sums for int8, exact sums of each group for int4.
const Engine& int8_engine();
const Engine& int4_engine();
/// engine(), and for weights of i8 one of those above.
const Engine& engine_for(const PackedWeight& weight);

/// Rows in vectors of AVX-512.
const wide::RowKernels& row_kernels();

}  // namespace tessera::kernels::avx512

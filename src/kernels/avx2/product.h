#pragma once

#include "kernels/wide/product.h"

// The products of AVX2: engines over what kernels/wide shares.
namespace tessera::kernels::avx2 {

using namespace wide;

/// Fused multiply-adds of f32; bf16 weights are widened in registers, or once for many rows.
const Engine& multiply_add_engine();
/// Weights of i8, and those alone: a row is rounded to whole numbers up to 32,639, which its
/// largest magnitude becomes; their products with the weights are exact over 512 elements, then
/// sums in f32. `vnni`: by AVX-VNNI, in half as many instructions; the bits are the same.
const Engine& digit_engine(bool vnni);
/// The same for nibbles (kernels/nibbles.h): sums of a group are exact, those of groups in f32. The
/// bits are those of AVX-512.
const Engine& nibble_engine(bool vnni);
/// The same for PackedWeight::int8_rows.
const Engine& int8_engine(bool vnni);
const Engine& int4_engine(bool vnni);
/// multiply_add_engine(), and for weights of i8 one of those above.
const Engine& engine_for(const PackedWeight& weight);

/// Rows in vectors of AVX2.
const wide::RowKernels& row_kernels();

}  // namespace tessera::kernels::avx2

#pragma once

#include "kernels/wide/product.h"

// The engines of AVX2 over the shared code of kernels/wide.
namespace tessera::kernels::avx2 {

using namespace wide;

/// Fused multiply-adds of f32; bf16 weights are widened in registers, or once for many rows.
const Engine& multiply_add_engine();
/// Only for i8 weights. A row is rounded to integers with maximum 32,639; products with the weights
/// are exact over 512 elements, then summed in f32. `vnni`: uses AVX-VNNI with half the
/// instructions and identical bits.
const Engine& digit_engine(bool vnni);
/// Same for int4 (kernels/nibbles.h): exact sums in a group, f32 sums over groups. The bits equal
/// those of AVX-512.
const Engine& nibble_engine(bool vnni);
/// Same for PackedWeight::int8_rows.
const Engine& int8_engine(bool vnni);
const Engine& int4_engine(bool vnni);
/// multiply_add_engine(), or for i8 weights an engine above.
const Engine& engine_for(const PackedWeight& weight);

/// Row kernels in vectors of AVX2.
const wide::RowKernels& row_kernels();

}  // namespace tessera::kernels::avx2

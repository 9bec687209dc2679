#pragma once

#include "kernels/matmul.h"

namespace tessera::kernels::cuda {

constexpr int64_t kFewRows = 8;
constexpr int kFewWarps = 8;  // warps of a thread block

/// True if few_rows() supports a product: up to kFewRows rows of whole 16-byte words, unpaired
/// weights in f32 or bf16.
bool serves_few_rows(const MatmulArgs& args);

/// A product bound by reading the weights, such as a modulation: each warp handles a few rows of w.
/// Keeps the row rule.
void few_rows(const MatmulArgs& args);

}  // namespace tessera::kernels::cuda

#pragma once

#include "kernels/matmul.h"

namespace tessera::kernels::cuda {

constexpr int64_t kFewRows = 8;
constexpr int kFewWarps = 8;  // of a block of threads

/// Whether few_rows() takes a product: up to kFewRows rows of whole 16-byte words, weights in f32
/// or bf16 that are not paired.
bool serves_few_rows(const MatmulArgs& args);

/// A product that is the reading of its weights, such as a modulation: a warp to a few rows of w.
/// Keeps the row rule.
void few_rows(const MatmulArgs& args);

}  // namespace tessera::kernels::cuda

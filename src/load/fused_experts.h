#pragma once

#include "load/tensor_set.h"

namespace tessera::load {

/// Splits the fused experts of a layer into tensors with separate names. `X.experts.gate_up_proj`
/// [experts, 2 n, k], gate above up, becomes `X.experts.E.gate_proj.weight` and `up_proj` [n, k]
/// for each expert E, and `X.experts.down_proj` [experts, k, n] becomes
/// `X.experts.E.down_proj.weight` (the format of transformers 5). The bytes are not copied.
TensorSet with_single_experts(const TensorSet& tensors);

}  // namespace tessera::load

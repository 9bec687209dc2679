#pragma once

#include "load/tensor_set.h"

namespace tessera::load {

/// The same tensors by the names that experts have one by one, where a layer's are in one:
/// `X.experts.gate_up_proj` [experts, 2 n, k], gate above up, is `X.experts.E.gate_proj.weight` and
/// `up_proj` [n, k] of each, `X.experts.down_proj` [experts, k, n] is
/// `X.experts.E.down_proj.weight` (transformers 5 writes them so). Their bytes stay where they are.
TensorSet with_single_experts(const TensorSet& tensors);

}  // namespace tessera::load

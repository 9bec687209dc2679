#pragma once

#include <cstdint>

#include "tensor/storage.h"

namespace tessera::ops {

/// Packing id of weights, in addition to numbers and element type: depends on the instruction set
/// of the device's kernels. Weights of different packings are not interchangeable.
uint8_t packing_of(tensor::Device device);
/// True for the panel layout of kernels/packed_weight.h; false for GPUs and for the reference
/// kernels.
bool packs_in_panels(tensor::Device device);
/// Bytes of a step of a panel of whole numbers; of int4 its scales are in it.
int64_t step_bytes(bool int4);

}  // namespace tessera::ops

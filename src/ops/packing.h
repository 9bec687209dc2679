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

}  // namespace tessera::ops

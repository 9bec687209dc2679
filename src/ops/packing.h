#pragma once

#include <cstdint>

#include "tensor/storage.h"

namespace tessera::ops {

/// What packed weights depend on beside numbers and element type: the instruction set that kernels
/// of the device use. Weights of different packings are not interchangeable.
uint8_t packing_of(tensor::Device device);
/// Whether that is the order of kernels/packed_weight.h for all that is not a GPU's.
bool packs_in_panels(tensor::Device device);
/// Bytes of a step of a panel of whole numbers; of int4 its scales are in it.
int64_t step_bytes(bool int4);

}  // namespace tessera::ops

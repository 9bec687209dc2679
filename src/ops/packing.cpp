#include "ops/packing.h"

#include "kernels/isa.h"

namespace tessera::ops {

uint8_t packing_of(tensor::Device device) {
  const bool host = device == tensor::Device::cpu;
  return static_cast<uint8_t>(host ? kernels::active_isa() : kernels::Isa::reference);
}

}  // namespace tessera::ops

#include "ops/packing.h"

#include "kernels/isa.h"
#include "kernels/nibbles.h"

namespace tessera::ops {

uint8_t packing_of(tensor::Device device) {
  const bool host = device == tensor::Device::cpu;
  return static_cast<uint8_t>(host ? kernels::active_isa() : kernels::Isa::reference);
}

bool packs_in_panels(tensor::Device device) {
  return device == tensor::Device::cpu && kernels::active_isa() >= kernels::Isa::avx2;
}

int64_t step_bytes(bool int4) { return int4 ? kernels::kNibbleStepBytes : kernels::kStepBytes; }

}  // namespace tessera::ops

#include "fused/cuda/seeded.h"

#define TESSERA_FUSED_FAULTS ::tessera::fused::emulated::Seeded
#include "fused/cuda/kernel.cu"
// The host code again, in the namespace of the emulation.
#include "fused/cuda/operator.cpp"  // NOLINT(bugprone-suspicious-include)

#include "fused/cuda/seeded.h"

#define TESSERA_FUSED_FAULTS ::tessera::fused::emulated::Seeded
#include "fused/cuda/kernel.cu"
#include "fused/cuda/operator.cpp"

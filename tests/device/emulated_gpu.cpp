#include "device/emulated_gpu.h"

#include "device/emulated_kernels.h"
#include "kernels/table.h"

namespace tessera::device {

EmulatedGpu::EmulatedGpu(int64_t capacity) : EmulatedDevice(capacity) {
  serve_kernels(&arena());
  kernels::replace_cuda_table(&emulated_table());
}

EmulatedGpu::~EmulatedGpu() {
  kernels::replace_cuda_table(nullptr);
  serve_kernels(nullptr);
}

int64_t EmulatedGpu::kernels() const { return kernels_run(); }

}  // namespace tessera::device

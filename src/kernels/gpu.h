#pragma once

#include <memory>

#include "tensor/device_runtime.h"

namespace tessera::kernels {

/// Number of GPUs of this machine. Throws Error(usage) as open_gpu() does.
int gpu_count();
/// Opens GPU `index` of this machine, for tensor::use_device(). Throws Error(usage), in a single
/// line with advice: for a program without CUDA, a machine without a driver or without this GPU,
/// and a GPU older than compute capability 8.0.
std::shared_ptr<tensor::DeviceRuntime> open_gpu(int index);

}  // namespace tessera::kernels

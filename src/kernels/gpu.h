#pragma once

#include <memory>

#include "tensor/device_runtime.h"

namespace tessera::kernels {

/// GPUs of this machine. Throws Error(usage) as open_gpu().
int gpu_count();
/// GPU `index` of this machine, for tensor::use_device(). Throws Error(usage), in one line with
/// what to do: a program without CUDA, a machine without a driver or without that GPU, a GPU that
/// is older than compute capability 8.0.
std::shared_ptr<tensor::DeviceRuntime> open_gpu(int index);

}  // namespace tessera::kernels

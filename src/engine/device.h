#pragma once

#include <string>

#include "tensor/storage.h"

namespace tessera::engine {

/// Where a run computes.
struct DeviceChoice {
  tensor::Device device = tensor::Device::cpu;
  int index = 0;  ///< of the GPU
};
/// Reads "cpu", "cuda" or "cuda:N". Throws Error(usage).
DeviceChoice parse_device(const std::string& text);
/// Takes a GPU into use for the rest of the process, if the choice is one and none is. Throws
/// Error(usage) where it cannot serve, or another one is in use already.
void start_device(const DeviceChoice& choice);
/// "cpu" or "cuda:0 (NVIDIA H200)", for reports.
std::string device_name(const DeviceChoice& choice);
/// Bytes that the GPU in use has left, and what this process keeps for itself.
int64_t free_device_memory();

}  // namespace tessera::engine

#pragma once

#include <string>

#include "comm/communicator.h"
#include "tensor/tensor.h"
#include "tessera/request.h"

namespace tessera::runtime {

/// Where a run computes.
struct DeviceChoice {
  tensor::Device device = tensor::Device::cpu;
  int index = 0;       ///< index of the GPU
  bool named = false;  ///< whether the user named a device
};
/// Chooses the device of an option.
DeviceChoice choose_device(const DeviceOption& option);
/// Takes a GPU into use for the rest of the process, if the choice is a GPU and no GPU is in use.
/// Throws Error(usage) if the GPU is unusable, or if another GPU is in use already.
void start_device(const DeviceChoice& choice);
/// Starts the device of a run. If ranks are processes, the i-th rank of a machine takes GPU i, and
/// the first call opens the peer access between GPUs. Throws Error(usage) if ranks would share a
/// GPU.
void start_device(DeviceChoice& choice, const RunOptions& options);
/// Throws Error(plan) for plans that gather weights, if the choice is a GPU.
void check_weights(const Plan& plan, const DeviceChoice& choice);
/// Throws Error(usage) unless each of the ranks of this machine can have a GPU.
void check_gpus(int gpus, int ranks);
/// All ranks use the instruction set of the first rank, because measurements on a busy machine may
/// differ.
void share_bf16_path(comm::Communicator& world);
/// "cpu" or "cuda:0 (NVIDIA H200)", for reports.
std::string device_name(const DeviceChoice& choice);
/// Copies a tensor to the memory of the host; meta tensors stay on meta.
tensor::Tensor on_host(const tensor::Tensor& x);
/// Free bytes of the GPU in use, plus this process's own allocations.
int64_t free_device_memory();

}  // namespace tessera::runtime

#pragma once

#include <string>

#include "comm/communicator.h"
#include "tensor/tensor.h"
#include "tessera/request.h"

namespace tessera::runtime {

/// Where a run computes.
struct DeviceChoice {
  tensor::Device device = tensor::Device::cpu;
  int index = 0;       ///< of the GPU
  bool named = false;  ///< whether the user chose it
};
/// Of what the caller asked for.
DeviceChoice choose_device(const DeviceOption& option);
/// Takes a GPU into use for the rest of the process, if the choice is one and none is. Throws
/// Error(usage) where it cannot serve, or another one is in use already.
void start_device(const DeviceChoice& choice);
/// The same for a run. Of ranks that are processes the i-th of a machine takes GPU i, and all of
/// them open the ways between their GPUs, at the first call. Throws Error(usage) where ranks would
/// share a GPU.
void start_device(DeviceChoice& choice, const RunOptions& options);
/// Throws Error(plan) for a fused layer of experts (moe=fused) on a GPU.
void check_experts(const Plan& plan, const DeviceChoice& choice);
/// Throws Error(usage) unless each of the ranks of this machine can have a GPU.
void check_gpus(int gpus, int ranks);
/// All ranks take the unit of the first one, whatever a busy moment lets the others measure.
void share_unit(comm::Communicator& world);
/// "cpu" or "cuda:0 (NVIDIA H200)", for reports.
std::string device_name(const DeviceChoice& choice);
/// In the memory of the host; what is on meta stays there.
tensor::Tensor on_host(const tensor::Tensor& x);
/// Bytes that the GPU in use has left, and what this process keeps for itself.
int64_t free_device_memory();

}  // namespace tessera::runtime

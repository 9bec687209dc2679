#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/whereabouts.h"
#include "tensor/tensor.h"

namespace tessera::fused {

/// The place of a rank's GPU, for messages.
struct GpuPlace {
  comm::Whereabouts process;
  std::array<char, 16> address{};  ///< its GPU (DeviceRuntime::address), with a null behind

  /// The place of the calling rank.
  static GpuPlace here(int rank);
  /// The address as text; other characters than its own as '?'.
  std::string device() const;
};
/// Replaces GpuPlace::here() in tests; null: no replacement.
void replace_gpu_places(std::function<GpuPlace(int rank)> place);

/// Places of all ranks of `group`. All ranks call. Throws Error(rank) for a message of another
/// form.
std::vector<GpuPlace> gather_places(comm::Communicator& group);
/// True if all ranks are threads of a process with a GPU in common; false if each has a GPU of its
/// own, on one host or, with NVSHMEM, on several. Otherwise throws Error(plan) on all ranks, with
/// both ranks.
bool share_a_gpu(const comm::Communicator& group, const std::vector<GpuPlace>& places);

/// Symmetric buffers on GPUs.
struct PeerBuffers {
  std::vector<std::byte*> addresses;   ///< by rank; null: on another host (kernels/far_memory)
  std::vector<tensor::Tensor> owners;  ///< they keep the memory
};
/// A buffer of zeros for each rank. GPUs of one host write into each other's memory, whose handles
/// travel as files (comm/file_post); between hosts buffers are of NVSHMEM. The own one counts as
/// buffers of the caller's scope. All ranks call. An error of one rank is thrown on all:
/// Error(plan) for GPUs without peer access, with both, Error(rank) for other sizes or a peer's
/// memory that cannot be mapped.
PeerBuffers open_peer_buffers(comm::Communicator& group, const std::vector<GpuPlace>& places,
                              int64_t bytes);

}  // namespace tessera::fused

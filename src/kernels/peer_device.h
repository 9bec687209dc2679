#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/descriptor.h"

namespace tessera::kernels {

/// Memory of a GPU, of zeros, and a file by which other processes map it.
struct ExportedMemory {
  std::shared_ptr<std::byte> memory;
  base::Descriptor file;
};

/// The GPU of this process beside those of other processes of the host. Memory lives until its last
/// owner in any process is gone.
class PeerDevice {
 public:
  virtual ~PeerDevice() = default;
  /// The reason against writes of this GPU into the memory of the GPU at this address; "": none.
  virtual std::string problem(const std::string& address) const = 0;
  /// Throws Error(memory) if the GPU has no room.
  virtual ExportedMemory allocate(int64_t bytes) = 0;
  /// Memory of a peer. Throws Error(rank) for a file without this many bytes of a GPU's memory.
  virtual std::shared_ptr<std::byte> map(int file, int64_t bytes) = 0;
};

/// The GPU in use, with memory of the driver in whole pages (CUDA's virtual memory management): a
/// mapping keeps them, in whatever order processes end. Throws Error(usage) without CUDA or a GPU
/// in use, Error(rank) with the driver's text.
std::unique_ptr<PeerDevice> open_peer_device();

}  // namespace tessera::kernels

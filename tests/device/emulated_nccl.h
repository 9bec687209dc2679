#pragma once

#include <cstdint>

#include "comm/nccl/library.h"
#include "device/emulated_device.h"

namespace tessera::device {

/// NCCL between ranks with a common emulated GPU. A transfer is work of both streams, and both wait
/// for each other. Communicators have two ranks, and belong to the GPU of the thread that opened
/// them: an abort waits until none of their kernels runs. Only a single object may exist at a time.
class EmulatedNccl {
 public:
  explicit EmulatedNccl(EmulatedDevice& device);
  ~EmulatedNccl();
  EmulatedNccl(const EmulatedNccl&) = delete;
  EmulatedNccl& operator=(const EmulatedNccl&) = delete;
  static comm::nccl::Functions functions();

  /// From now on sends never move, as on a hung GPU; only an abort ends them.
  void stall();
  /// NCCL's status of every communicator from now on.
  void report(int result);
  /// Completed transfers, live ends of communicators, and calls that real NCCL would not survive.
  int64_t transfers() const;
  int64_t open_ends() const;
  int64_t misuses() const;
  /// The peak of unfinished sends of a communicator.
  int64_t most_under_way() const;
};

}  // namespace tessera::device

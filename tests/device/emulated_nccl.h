#pragma once

#include <cstdint>

#include "comm/nccl/library.h"
#include "device/emulated_device.h"

namespace tessera::device {

/// NCCL between ranks that share an emulated GPU: a transfer is work of both streams, and neither
/// goes on before the other has come to it. Communicators are of two ranks, and a GPU's are those
/// that one thread has opened: an abort waits until no kernel of them runs. One at a time.
class EmulatedNccl {
 public:
  explicit EmulatedNccl(EmulatedDevice& device);
  ~EmulatedNccl();
  EmulatedNccl(const EmulatedNccl&) = delete;
  EmulatedNccl& operator=(const EmulatedNccl&) = delete;
  static comm::nccl::Functions functions();

  /// From now on sends never move, as those of a GPU that hangs; only an abort ends them.
  void stall();
  /// What NCCL says of every communicator from now on.
  void report(int result);
  /// Transfers that moved, ends of communicators that live, and calls that NCCL would not survive.
  int64_t transfers() const;
  int64_t open_ends() const;
  int64_t misuses() const;
  /// The most sends of one communicator that had begun and not ended.
  int64_t most_under_way() const;
};

}  // namespace tessera::device

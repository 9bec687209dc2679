#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <utility>

#include "comm/nccl/library.h"
#include "tensor/device_runtime.h"
#include "tensor/tensor.h"

namespace tessera::comm::nccl {

/// One direction between this rank and another: a communicator of the two and a stream, on which
/// transfers follow each other in the order in which they were sent. Used by one thread at a time.
class Link {
 public:
  enum class Way { out, in };
  using Clock = std::chrono::steady_clock;
  Link(const Functions& nccl, std::shared_ptr<tensor::DeviceRuntime> runtime, int peer, Way way,
       std::chrono::milliseconds deadline);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// Waits until the peer opens its end, and moves a first byte: what NCCL allocates and connects
  /// is there before other transfers run. Throws Error(rank) when that lasts for `deadline`.
  void open(const UniqueId& id);
  /// Starts the transfer of a dense tensor with elements, after the event `ready`; the event of its
  /// end. The tensor is kept until then, whoever drops it.
  std::shared_ptr<void> move(tensor::Tensor data, const std::shared_ptr<void>& ready);
  /// Lets go of what has been moved; how many transfers that were.
  int settle();
  /// Whether anything is under way that settle() has not let go.
  bool busy() const { return !moving_.empty(); }
  /// Throws Error(rank) when NCCL says that the link is broken, or when a transfer has lasted for
  /// `deadline` while `progress`, of the world, did not change.
  void look(uint64_t progress);
  /// Ends transfers under way, with any elements. Afterwards the link moves nothing.
  void cut();
  /// The communicator, for who aborts several at once; null when it was cut.
  void* release() { return std::exchange(comm_, nullptr); }

 private:
  // Waits for what NCCL goes on with, at most for the deadline. Throws Error(rank) unless it
  // succeeds.
  void finish(int result, const char* call);

  struct Transfer {
    tensor::Tensor data;
    std::shared_ptr<void> done;
  };
  Functions nccl_;
  std::shared_ptr<tensor::DeviceRuntime> runtime_;
  int peer_;
  Way way_;
  std::chrono::milliseconds deadline_;
  std::shared_ptr<void> stream_;
  void* comm_ = nullptr;
  std::deque<Transfer> moving_;
  uint64_t moved_ = 0;  // transfers that ended
  std::pair<uint64_t, uint64_t> seen_;
  Clock::time_point since_ = Clock::now();
};

}  // namespace tessera::comm::nccl

#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <utility>

#include "comm/nccl/library.h"
#include "tensor/device_runtime.h"
#include "tensor/tensor.h"

namespace tessera::comm::nccl {

/// A direction between this rank and another: a communicator of both and a stream, with transfers
/// in the order of their sends. Used by one thread at a time.
class Link {
 public:
  enum class Way { out, in };
  using Clock = std::chrono::steady_clock;
  Link(const Functions& nccl, std::shared_ptr<tensor::DeviceRuntime> runtime, int peer, Way way,
       std::chrono::milliseconds deadline);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// Waits until the peer opens its end, and moves a first byte, so NCCL's allocations and
  /// connections exist before other transfers. Throws Error(rank) after `deadline`.
  void open(const UniqueId& id);
  /// Starts the transfer of a dense tensor with elements, after the event `ready`; returns the
  /// event of its end. Keeps the tensor until then.
  std::shared_ptr<void> move(tensor::Tensor data, const std::shared_ptr<void>& ready);
  /// Releases finished transfers; returns their number.
  int settle();
  /// True if any transfer is under way or unsettled.
  bool busy() const { return !moving_.empty(); }
  /// Throws Error(rank) when NCCL reports a broken link, or when a transfer lasts for `deadline`
  /// without a change of the world's `progress`.
  void look(uint64_t progress);
  /// Ends transfers under way, with any elements. The link moves nothing afterwards.
  void cut();
  /// The communicator, for several aborts at once; null after a cut.
  void* release() { return std::exchange(comm_, nullptr); }

 private:
  // Waits for NCCL's background work, at most for the deadline. Throws Error(rank) unless it
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
  uint64_t moved_ = 0;  // finished transfers
  std::pair<uint64_t, uint64_t> last_progress_;
  Clock::time_point since_ = Clock::now();
};

}  // namespace tessera::comm::nccl

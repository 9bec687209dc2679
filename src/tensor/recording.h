#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tensor/device_pool.h"
#include "tensor/scope.h"
#include "tensor/tensor.h"
#include "tessera/error.h"

namespace tessera::tensor {

/// Thrown by a copy between host and device during a recording, because a recording cannot wait for
/// either. Recording::attempt() catches the exception.
class NeedsHost : public Error {
 public:
  NeedsHost() : Error(ErrorCode::usage, "device work that the host takes part in is recorded") {}
};

/// Recorded work of a device, to be repeated at the cost of a single launch: a CUDA graph. All
/// repetitions use the same addresses, so the recording owns the memory it allocated, and tensors
/// it reads must outlive it.
class Recording {
 public:
  /// Calls work() and records its device work without running it. Returns null if recording is
  /// impossible: the work needs the host in between, the device cannot record or fails, memory is
  /// short, or the environment has TESSERA_GRAPHS=0. In these cases no work was done. Throws
  /// Error(cancelled), Error(usage) for a TESSERA_GRAPHS other than 0 or 1, and exceptions of other
  /// types than Error.
  static std::unique_ptr<Recording> attempt(const std::function<void()>& work);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  /// Queues the recorded work on the scope's stream, and counts the work in the scope's meter.
  void replay();
  /// Keeps a tensor that the work reads alive as long as the recording.
  void keep(const Tensor& read) { kept_.push_back(read); }

 private:
  explicit Recording(std::shared_ptr<DevicePool> pool);
  void record(const std::function<void()>& work);

  std::shared_ptr<DevicePool> pool_;
  int64_t arena_;
  std::unique_ptr<DeviceGraph> graph_;
  std::vector<Tensor> kept_;
  std::map<std::string, Meter::Entry> counts_;
};

}  // namespace tessera::tensor

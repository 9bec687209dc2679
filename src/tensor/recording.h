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

/// Thrown by a copy between the host and a device while work is recorded: it cannot wait for
/// either. Recording::attempt() catches it.
class NeedsHost : public Error {
 public:
  NeedsHost() : Error(ErrorCode::usage, "device work that the host takes part in is recorded") {}
};

/// Work of a device that was recorded once, to be done again and again at the cost of one launch: a
/// CUDA graph. It reads and writes the same addresses every time, so memory that it took stays its
/// own until it ends, and tensors that it read must live as long.
class Recording {
 public:
  /// Calls work() with all that it asks of the device recorded instead of done. Null where that
  /// cannot be, whatever the reason: work needs the host in between, the device cannot record or
  /// fails to, has too little memory, or TESSERA_GRAPHS=0 is in the environment; nothing was done
  /// then. Throws Error(cancelled), Error(usage) for another TESSERA_GRAPHS than 0 or 1, and what
  /// is no Error.
  static std::unique_ptr<Recording> attempt(const std::function<void()>& work);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  /// Queues all of it on the scope's stream, and counts it in the scope's meter.
  void replay();
  /// Lets a tensor that the work reads live as long as this.
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

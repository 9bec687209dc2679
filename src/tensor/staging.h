#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "tensor/device_runtime.h"

namespace tessera::tensor {

/// Uploads through a few pinned blocks, for devices that may read other host memory at any later
/// time (heterogeneous memory management). On return an upload has read its source, without waiting
/// for the device. Thread-safe.
class Staging {
 public:
  static constexpr int64_t kBlock = int64_t{4} << 20;
  static constexpr int kBlocks = 4;

  /// Functions of the device; each may throw as DeviceRuntime does.
  struct Ways {
    std::function<std::shared_ptr<void>(int64_t bytes)> pinned;  ///< allocates pinned memory
    std::function<void(const CopyBox& box, void* stream)> copy;  ///< later, from pinned memory
    std::function<std::shared_ptr<void>(void* stream)> record;   ///< records an event
    std::function<void(void* event)> wait;                       ///< waits on the host for an event
  };
  explicit Staging(Ways ways);
  void upload(const CopyBox& box, void* stream);

 private:
  struct Block {
    std::shared_ptr<void> memory, read;  // read: event of the device's last read, or null
  };
  void pass(const CopyBox& part, void* stream);

  const Ways ways_;
  std::mutex mutex_;
  std::array<Block, kBlocks> blocks_;
  size_t next_ = 0;
};

}  // namespace tessera::tensor

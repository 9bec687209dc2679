#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "tensor/device_runtime.h"

namespace tessera::tensor {

/// Uploads through a few blocks of memory that the device reads itself, for devices that read the
/// host's other memory at any later time (heterogeneous memory management): an upload has read its
/// source when it returns, and need not wait for the device. Thread-safe.
class Staging {
 public:
  static constexpr int64_t kBlock = int64_t{4} << 20;
  static constexpr int kBlocks = 4;

  /// What it needs of a device; each may throw what DeviceRuntime throws.
  struct Ways {
    std::function<std::shared_ptr<void>(int64_t bytes)> pinned;  ///< memory for it
    std::function<void(const CopyBox& box, void* stream)> copy;  ///< out of that, later
    std::function<std::shared_ptr<void>(void* stream)> record;   ///< an event
    std::function<void(void* event)> wait;                       ///< the host, for one
  };
  explicit Staging(Ways ways);
  void upload(const CopyBox& box, void* stream);

 private:
  struct Block {
    std::shared_ptr<void> memory, read;  // read: null, or when the device has read it
  };
  void pass(const CopyBox& part, void* stream);

  const Ways ways_;
  std::mutex mutex_;
  std::array<Block, kBlocks> blocks_;
  size_t next_ = 0;
};

}  // namespace tessera::tensor

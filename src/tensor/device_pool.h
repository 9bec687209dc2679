#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "tensor/device_runtime.h"
#include "tensor/storage.h"

namespace tessera::tensor {

/// Caches freed device memory for later tensors of about the same size. Memory may be given back
/// while work on it is still pending, because the next user works later on the same stream. A user
/// on another stream must wait for the process's stream as of the time of take(), and must keep the
/// block until its own work is done. Thread-safe.
class DevicePool {
 public:
  explicit DevicePool(std::shared_ptr<DeviceRuntime> runtime);
  /// Returns cached blocks to the runtime; no block may be in use.
  ~DevicePool();
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;

  DeviceRuntime& runtime() const { return *runtime_; }
  /// Returns at least `bytes`. If the device is out of memory, cached blocks are freed and the
  /// allocation is repeated; then throws Error(memory) with the numbers. With an arena the memory
  /// returns to the arena; cached blocks may come from the arena or from outside.
  std::byte* take(int64_t bytes, MemoryClass memory_class, int64_t arena = 0);
  /// Gives back a block from take().
  void give(std::byte* block);
  /// Frees cached blocks outside arenas.
  void flush();
  /// Opens an arena. Until the arena is closed, its memory serves only the arena, whether a tensor
  /// holds the memory or not.
  int64_t open_arena();
  void close_arena(int64_t arena);
  /// Bytes in use, cached bytes, and the number of allocations from the runtime.
  struct Use {
    int64_t live = 0, waiting = 0, allocations = 0;
  };
  Use use() const;
  /// Rounds a request: weights to whole lines, all other memory to eighths of a power of two, so
  /// that tensors of similar size share blocks.
  static int64_t rounded(int64_t bytes, MemoryClass memory_class);

 private:
  std::shared_ptr<DeviceRuntime> runtime_;
  mutable std::mutex mutex_;
  using Blocks = std::multimap<int64_t, std::byte*>;  // by size
  struct Live {
    int64_t size = 0, arena = 0;
  };
  /// A cached block of a fitting size, or {0, null}.
  static std::pair<int64_t, std::byte*> fitting(Blocks& blocks, int64_t bytes);
  Blocks waiting_;
  std::map<int64_t, Blocks> arenas_;
  std::map<std::byte*, Live> live_;
  int64_t last_arena_ = 0;
  Use use_;
};

/// Whether a device has its own memory with a DeviceRuntime.
constexpr bool is_gpu(Device device) { return device != Device::cpu && device != Device::meta; }
/// Sets the pool for this process's GPU, once; null removes the pool. Live tensors keep their pool
/// alive.
void use_device(std::shared_ptr<DevicePool> pool);
/// Throws Error(usage) if no pool is set.
std::shared_ptr<DevicePool> device_pool();
/// Whether a GPU can hold tensors now.
bool has_device();
/// Waits until a GPU has finished all work of the current scope's stream. On other devices work is
/// done when an op returns, so there is no wait.
void settle(Device device);

}  // namespace tessera::tensor

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

/// Keeps freed device memory for the next tensor of about its size. Memory may be given back while
/// work on it is still pending: whoever takes it next works later on the same stream. Who works on
/// another one lets it begin after what the process's stream holds when it takes the block, and
/// keeps the block until that work is done. Thread-safe.
class DevicePool {
 public:
  explicit DevicePool(std::shared_ptr<DeviceRuntime> runtime);
  /// Gives the runtime back what waits; no block may be in use.
  ~DevicePool();
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;

  DeviceRuntime& runtime() const { return *runtime_; }
  /// At least `bytes`. When the device has no more, what waits is freed and it is tried again; then
  /// throws Error(memory) with the numbers.
  /// With an arena: memory that returns to it, out of what waits there or anywhere.
  std::byte* take(int64_t bytes, MemoryClass memory_class, int64_t arena = 0);
  /// A block from take().
  void give(std::byte* block);
  /// Frees what waits outside arenas.
  void flush();
  /// An arena's memory serves nobody else, whether a tensor holds it or not, until it is closed.
  int64_t open_arena();
  void close_arena(int64_t arena);
  /// Bytes in use, bytes that wait, and how often the runtime was asked for memory.
  struct Use {
    int64_t live = 0, waiting = 0, allocations = 0;
  };
  Use use() const;
  /// What a request takes: weights to whole lines, everything else to eighths of a power of two, so
  /// that tensors of nearly one size share blocks.
  static int64_t rounded(int64_t bytes, MemoryClass memory_class);

 private:
  std::shared_ptr<DeviceRuntime> runtime_;
  mutable std::mutex mutex_;
  using Blocks = std::multimap<int64_t, std::byte*>;  // by size
  struct Live {
    int64_t size = 0, arena = 0;
  };
  /// A waiting block that fits, or nothing: {0, null}.
  static std::pair<int64_t, std::byte*> fitting(Blocks& blocks, int64_t bytes);
  Blocks waiting_;
  std::map<int64_t, Blocks> arenas_;
  std::map<std::byte*, Live> live_;
  int64_t last_arena_ = 0;
  Use use_;
};

/// Whether a device has memory of its own, which a DeviceRuntime serves.
constexpr bool is_gpu(Device device) { return device != Device::cpu && device != Device::meta; }
/// The pool over the runtime that serves the GPU of this process, named once by whoever starts
/// it; null takes it away. Tensors that live keep their pool alive.
void use_device(std::shared_ptr<DevicePool> pool);
/// Throws Error(usage) when none is in use.
std::shared_ptr<DevicePool> device_pool();
/// Whether a GPU can hold tensors now.
bool has_device();
/// Waits until a GPU has done all work of the current scope's stream; elsewhere work is done when
/// an op returns, and nothing is waited for.
void settle(Device device);

}  // namespace tessera::tensor

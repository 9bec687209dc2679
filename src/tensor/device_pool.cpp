#include "tensor/device_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/fail.h"
#include "tensor/scope.h"

namespace tessera::tensor {
namespace {

constexpr int64_t kLine = 512;

}  // namespace

DevicePool::DevicePool(std::shared_ptr<DeviceRuntime> runtime) : runtime_(std::move(runtime)) {}

DevicePool::~DevicePool() {
  try {
    flush();
  } catch (...) {
    return;  // a failed device keeps its memory until the process ends
  }
}

int64_t DevicePool::rounded(int64_t bytes, MemoryClass memory_class) {
  int64_t step = kLine;
  if (memory_class != MemoryClass::weights) {
    const auto size = static_cast<uint64_t>(std::max(bytes, int64_t{1}));
    step = std::max(kLine, static_cast<int64_t>(std::bit_floor(size) / 8));
  }
  return (std::max(bytes, int64_t{1}) + step - 1) / step * step;
}

std::pair<int64_t, std::byte*> DevicePool::fitting(Blocks& blocks, int64_t bytes) {
  const auto it = blocks.lower_bound(bytes);
  if (it == blocks.end() || it->first > bytes + bytes / 8) return {0, nullptr};
  const std::pair<int64_t, std::byte*> block = *it;
  blocks.erase(it);
  return block;
}

std::byte* DevicePool::take(int64_t bytes, MemoryClass memory_class, int64_t arena) {
  runtime_->enter();
  const int64_t rounded_bytes = rounded(bytes, memory_class);
  std::unique_lock lock(mutex_);
  const auto it = arenas_.find(arena);
  auto [size, block] = it != arenas_.end() ? fitting(it->second, rounded_bytes)
                                           : std::pair<int64_t, std::byte*>{0, nullptr};
  if (block == nullptr) std::tie(size, block) = fitting(waiting_, rounded_bytes);
  use_.waiting -= size;
  if (block == nullptr) {
    size = rounded_bytes;
    ++use_.allocations;
    block = static_cast<std::byte*>(runtime_->allocate(rounded_bytes));
    if (block == nullptr && !waiting_.empty()) {
      lock.unlock();
      flush();
      block = static_cast<std::byte*>(runtime_->allocate(rounded_bytes));
      lock.lock();
    }
  }
  if (block == nullptr) {
    const DeviceMemory memory = runtime_->memory();
    fail(ErrorCode::memory,
         "the GPU ({}) has no {} MB for {}: {} MB of {} MB are free, this run holds {} MB: use a "
         "smaller size, batch or model",
         runtime_->name(), (rounded_bytes + (1 << 20) - 1) >> 20, name_of(memory_class),
         memory.free >> 20, memory.total >> 20, use_.live >> 20);
  }
  live_.emplace(block, Live{size, arena});
  use_.live += size;
  return block;
}

void DevicePool::give(std::byte* block) {
  const std::lock_guard lock(mutex_);
  const auto it = live_.find(block);
  if (it == live_.end()) return;
  const auto [size, arena] = it->second;
  const auto arena_blocks = arenas_.find(arena);
  (arena_blocks != arenas_.end() ? arena_blocks->second : waiting_).emplace(size, block);
  use_.live -= size;
  use_.waiting += size;
  live_.erase(it);
}

int64_t DevicePool::open_arena() {
  const std::lock_guard lock(mutex_);
  arenas_[++last_arena_];
  return last_arena_;
}

void DevicePool::close_arena(int64_t arena) {
  const std::lock_guard lock(mutex_);
  const auto it = arenas_.find(arena);
  if (it == arenas_.end()) return;
  waiting_.merge(it->second);
  arenas_.erase(it);
}

void DevicePool::flush() {
  runtime_->enter();
  Blocks blocks;
  {
    const std::lock_guard lock(mutex_);
    blocks.swap(waiting_);
    for (const auto& [size, block] : blocks) use_.waiting -= size;
  }
  // Freeing waits for all kernels; meanwhile other threads may use the pool.
  for (const auto& [size, block] : blocks) runtime_->free(block);
}

DevicePool::Use DevicePool::use() const {
  const std::lock_guard lock(mutex_);
  return use_;
}

namespace {

struct ActivePool {
  std::mutex mutex;
  std::shared_ptr<DevicePool> pool;
};

ActivePool& active_pool() {
  static ActivePool* const active = new ActivePool;  // outlives tensors in static storage
  return *active;
}

}  // namespace

void use_device(std::shared_ptr<DevicePool> pool) {
  const std::lock_guard lock(active_pool().mutex);
  active_pool().pool.swap(pool);
}

std::shared_ptr<DevicePool> device_pool() {
  const std::lock_guard lock(active_pool().mutex);
  require(active_pool().pool != nullptr, ErrorCode::usage,
          "no GPU is in use: name one with `device` cuda");
  return active_pool().pool;
}

bool has_device() {
  const std::lock_guard lock(active_pool().mutex);
  return active_pool().pool != nullptr;
}

void settle(Device device) {
  if (!is_gpu(device)) return;
  DeviceRuntime& runtime = device_pool()->runtime();
  runtime.enter();
  runtime.synchronise(current_scope().stream);
}

}  // namespace tessera::tensor

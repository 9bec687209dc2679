#include "tensor/device_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/fail.h"

namespace tessera::tensor {
namespace {

constexpr int64_t kLine = 512;

}  // namespace

DevicePool::DevicePool(std::shared_ptr<DeviceRuntime> runtime) : runtime_(std::move(runtime)) {}

DevicePool::~DevicePool() {
  try {
    flush();
  } catch (...) {
    return;  // a device that failed keeps its memory until the process ends
  }
}

int64_t DevicePool::rounded(int64_t bytes, MemoryClass memory_class) {
  int64_t step = kLine;
  if (memory_class != MemoryClass::weights) {
    const auto wanted = static_cast<uint64_t>(std::max(bytes, int64_t{1}));
    step = std::max(kLine, static_cast<int64_t>(std::bit_floor(wanted) / 8));
  }
  return (std::max(bytes, int64_t{1}) + step - 1) / step * step;
}

std::byte* DevicePool::take(int64_t bytes, MemoryClass memory_class) {
  runtime_->enter();
  const int64_t wanted = rounded(bytes, memory_class);
  const std::lock_guard lock(mutex_);
  std::byte* block = nullptr;
  int64_t size = wanted;
  const auto found = waiting_.lower_bound(wanted);
  if (found != waiting_.end() && found->first <= wanted + wanted / 8) {
    std::tie(size, block) = *found;
    waiting_.erase(found);
    use_.waiting -= size;
  } else {
    ++use_.allocations;
    block = static_cast<std::byte*>(runtime_->allocate(wanted));
    if (block == nullptr && !waiting_.empty()) {
      flush_locked();
      block = static_cast<std::byte*>(runtime_->allocate(wanted));
    }
  }
  if (block == nullptr) {
    const DeviceMemory memory = runtime_->memory();
    fail(ErrorCode::memory,
         "the GPU ({}) has no {} MB for {}: {} MB of {} MB are free, this run holds {} MB: use a "
         "smaller size, batch or model",
         runtime_->name(), (wanted + (1 << 20) - 1) >> 20, name_of(memory_class), memory.free >> 20,
         memory.total >> 20, use_.live >> 20);
  }
  live_.emplace(block, size);
  use_.live += size;
  return block;
}

void DevicePool::give(std::byte* block) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(block);
  if (found == live_.end()) return;
  waiting_.emplace(found->second, block);
  use_.live -= found->second;
  use_.waiting += found->second;
  live_.erase(found);
}

void DevicePool::flush_locked() {
  for (const auto& [size, block] : waiting_) runtime_->free(block);
  waiting_.clear();
  use_.waiting = 0;
}

void DevicePool::flush() {
  runtime_->enter();
  const std::lock_guard lock(mutex_);
  flush_locked();
}

DevicePool::Use DevicePool::use() const {
  const std::lock_guard lock(mutex_);
  return use_;
}

}  // namespace tessera::tensor

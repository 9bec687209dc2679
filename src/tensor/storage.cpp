#include "tensor/storage.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "base/fail.h"
#include "tensor/device_pool.h"
#include "tensor/page_pool.h"
#include "tensor/scope.h"

namespace tessera::tensor {
namespace {

constexpr int64_t kSlack = 512;  // vector kernels may read a little past the end
constexpr int64_t kHugePageFrom = int64_t{1} << 22, kPooledFrom = int64_t{1} << 20;
constexpr int64_t kOwnPagesFrom = int64_t{1} << 18;
constexpr size_t kHugePage = size_t{1} << 21;

size_t index_of(MemoryClass memory_class) { return static_cast<size_t>(memory_class); }

void raise_to(int64_t& peak, int64_t value) { peak = std::max(peak, value); }

constexpr size_t kBuffers = static_cast<size_t>(MemoryClass::buffers);

constexpr size_t kMostSpare = 8;  // waiting pages serve weights of an eighth of their size or more

/// Freed pages, waiting for the next weight of at most their size.
class WeightPagePool {
 public:
  void enter() {
    const std::lock_guard lock(mutex_);
    ++users_;
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    if (--users_ == 0) release();
  }
  /// Returns the smallest waiting pages for `size` bytes, with their size; null if none fit. Then
  /// all waiting pages are released as useless.
  std::pair<std::byte*, size_t> take(size_t size) {
    const std::lock_guard lock(mutex_);
    const auto it = spares_.lower_bound(size);
    if (it == spares_.end() || it->first > kMostSpare * size) {
      release();
      return {nullptr, size};
    }
    const std::pair<std::byte*, size_t> pages = {it->second, it->first};
    spares_.erase(it);
    return pages;
  }
  void give(std::byte* data, size_t size) {
    const std::lock_guard lock(mutex_);
    if (users_ > 0)
      spares_.emplace(size, data);
    else
      unmap_pages(data, size);
  }

 private:
  void release() {
    for (const auto& [size, data] : spares_) unmap_pages(data, size);
    spares_.clear();
  }
  std::mutex mutex_;
  int users_ = 0;
  std::multimap<size_t, std::byte*> spares_;
};

WeightPagePool& weight_page_pool() {
  static WeightPagePool* const pages = new WeightPagePool;  // outlives weights in static storage
  return *pages;
}

// Separate pages: a freed weight returns to the system, while the heap would keep holes between
// live blocks.
std::shared_ptr<void> own_pages(size_t bytes, size_t alignment) {
  const size_t size = page_bytes(bytes);
  const auto [spare, spare_size] = weight_page_pool().take(size);
  const auto release = [size = spare_size](void* pages) {
    weight_page_pool().give(static_cast<std::byte*>(pages), size);
  };
  if (spare != nullptr) return {spare, release};
  std::byte* const data = map_pages(size, alignment);
  if (data == nullptr) return nullptr;
  if (alignment >= kHugePage) ::madvise(data, bytes - kSlack, MADV_HUGEPAGE);
  return {data, release};
}

// Memory of the host: large weights have separate pages, other large tensors pages of a pool.
std::shared_ptr<void> host_memory(int64_t bytes, MemoryClass memory_class, PagePool& pool) {
  const bool weight = memory_class == MemoryClass::weights, large = bytes >= kHugePageFrom;
  const auto size = static_cast<size_t>(bytes + kSlack);
  if (weight && bytes >= kOwnPagesFrom) return own_pages(size, large ? kHugePage : 64);
  if (bytes >= kPooledFrom) return pool.take(size);
  const size_t rounded_size = (size + 63) / 64 * 64;
  return {std::aligned_alloc(64, rounded_size), std::free};
}

// Allocates again without the waiting pages if memory is short.
std::shared_ptr<void> host_memory(int64_t bytes, MemoryClass memory_class) {
  static const auto pool = std::make_shared<PagePool>();
  std::shared_ptr<void> memory = host_memory(bytes, memory_class, *pool);
  if (memory || pool->waiting() == 0) return memory;
  pool->release();
  return host_memory(bytes, memory_class, *pool);
}

}  // namespace

const char* name_of(Device device) {
  switch (device) {
    case Device::cpu: return "cpu";
    case Device::cuda: return "cuda";
    case Device::meta: return "meta";
  }
  return "?";
}

const char* name_of(MemoryClass memory_class) {
  switch (memory_class) {
    case MemoryClass::weights: return "weights";
    case MemoryClass::activations: return "activations";
    case MemoryClass::kv: return "kv";
    case MemoryClass::buffers: return "buffers";
  }
  return "?";
}

MemoryTracker::MemoryTracker(std::shared_ptr<MemoryTracker> whole) : whole_(std::move(whole)) {}

void MemoryTracker::add(MemoryClass memory_class, int64_t bytes) {
  add_shared(memory_class, bytes);
  if (whole_) whole_->add(memory_class, bytes);
}

void MemoryTracker::raise() {
  raise_to(spans_.empty() ? peaks_[kBuffers] : spans_.back().buffers, current_[kBuffers]);
  raise_to(spans_.empty() ? total_peak_ : spans_.back().total, total_);
}

void MemoryTracker::add_shared(MemoryClass memory_class, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const size_t i = index_of(memory_class);
  current_[i] += bytes;
  total_ += bytes;
  if (i != kBuffers) raise_to(peaks_[i], current_[i]);
  raise();
}

uint64_t MemoryTracker::expect() {
  const uint64_t whole = whole_ ? whole_->expect() : 0;
  const std::lock_guard lock(mutex_);
  spans_.push_back({current_[kBuffers], total_, true, whole});
  return first_ + spans_.size() - 1;
}

void MemoryTracker::arrived(uint64_t expected, int64_t bytes) {
  uint64_t whole = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto begin = static_cast<size_t>(expected - first_);
    spans_.at(begin).open = false;
    whole = spans_[begin].whole;
    for (size_t i = begin; i < spans_.size(); ++i) {
      spans_[i].buffers += bytes;
      spans_[i].total += bytes;
    }
    for (; !spans_.empty() && !spans_.front().open; spans_.pop_front(), ++first_) {
      raise_to(peaks_[kBuffers], spans_.front().buffers);
      raise_to(total_peak_, spans_.front().total);
    }
  }
  if (whole_) whole_->arrived(whole, bytes);
}

int64_t MemoryTracker::current(MemoryClass memory_class) const {
  const std::lock_guard lock(mutex_);
  return current_[index_of(memory_class)];
}

int64_t MemoryTracker::current() const {
  const std::lock_guard lock(mutex_);
  return total_;
}

int64_t MemoryTracker::peak(MemoryClass memory_class) const {
  const std::lock_guard lock(mutex_);
  int64_t peak = peaks_[index_of(memory_class)];
  for (const Span& span : spans_)
    if (memory_class == MemoryClass::buffers) raise_to(peak, span.buffers);
  return peak;
}

int64_t MemoryTracker::peak() const {
  const std::lock_guard lock(mutex_);
  int64_t peak = total_peak_;
  for (const Span& span : spans_) raise_to(peak, span.total);
  return peak;
}

PageReuse::PageReuse() { weight_page_pool().enter(); }
PageReuse::~PageReuse() { weight_page_pool().leave(); }

std::shared_ptr<Storage> Storage::allocate(int64_t bytes, Device device, MemoryClass memory_class) {
  std::shared_ptr<Storage> storage(new Storage);
  storage->device_ = device;
  storage->bytes_ = bytes;
  if (device == Device::cpu) {
    const std::shared_ptr<void> memory = host_memory(bytes, memory_class);
    require(memory != nullptr, ErrorCode::memory,
            "cannot allocate {} MB for {}: use a smaller size, batch or model", bytes >> 20,
            name_of(memory_class));
    storage->data_ = static_cast<std::byte*>(memory.get());
    storage->memory_ = memory;
  } else if (is_gpu(device)) {
    const auto pool = device_pool();
    storage->data_ = pool->take(bytes, memory_class, current_scope().arena);
    storage->memory_ = {storage->data_, [pool](std::byte* data) { pool->give(data); }};
  }
  storage->count(memory_class);
  return storage;
}

std::shared_ptr<Storage> Storage::view(const void* data, int64_t bytes,
                                       std::shared_ptr<const void> owner) {
  std::shared_ptr<Storage> storage(new Storage);
  storage->data_ = static_cast<std::byte*>(const_cast<void*>(data));
  storage->bytes_ = bytes;
  storage->memory_ = std::move(owner);
  return storage;
}

std::shared_ptr<Storage> Storage::part(const Storage& of, int64_t begin, int64_t bytes,
                                       std::optional<MemoryClass> memory_class) {
  std::shared_ptr<Storage> storage(new Storage);
  storage->device_ = of.device_;
  storage->data_ = of.data_ ? of.data_ + begin : nullptr;
  storage->bytes_ = bytes;
  storage->memory_ = of.memory_;
  if (memory_class) storage->count(*memory_class);
  return storage;
}

void Storage::count(MemoryClass memory_class) {
  memory_class_ = memory_class;
  tracker_ = current_scope().memory;
  if (tracker_) tracker_->add(memory_class, bytes_);
}

Storage::~Storage() {
  if (tracker_) tracker_->add(memory_class_, -bytes_);
}

}  // namespace tessera::tensor

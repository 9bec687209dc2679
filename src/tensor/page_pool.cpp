#include "tensor/page_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace tessera::tensor {
namespace {

constexpr size_t kHugePage = size_t{1} << 21;

}  // namespace

size_t page_bytes(size_t bytes) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

std::byte* map_pages(size_t size, size_t alignment) {
  const size_t page = page_bytes(1), step = std::max(alignment, page);
  void* const mapped =
      ::mmap(nullptr, size + step, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(mapped);
  const size_t before = (step - reinterpret_cast<uintptr_t>(begin) % step) % step;
  std::byte* const data = begin + before;
  if (before >= page) unmap_pages(begin, before);
  if (step - before >= page) unmap_pages(data + size, step - before);
  return data;
}

void unmap_pages(std::byte* pages, size_t size) { ::munmap(pages, size); }

std::shared_ptr<void> PagePool::take(size_t bytes) {
  size_t size = page_bytes(bytes);
  std::byte* block = reused(size);
  if (block == nullptr) {
    block = map_pages(size, kHugePage);
    if (block == nullptr) {
      const std::lock_guard lock(mutex_);
      live_ -= size;
      most_ = live_;
      return nullptr;
    }
    ::madvise(block, size, MADV_HUGEPAGE);
  }
  return {block, [self = shared_from_this(), size](void* freed) {
            self->give(static_cast<std::byte*>(freed), size);
          }};
}

size_t PagePool::live() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

size_t PagePool::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_;
}

// One that waits and is at most half as large again; else null, and there is room for another.
std::byte* PagePool::reused(size_t& size) {
  const std::lock_guard lock(mutex_);
  const auto found = spares_.lower_bound(size);
  std::byte* block = nullptr;
  if (found != spares_.end() && found->first <= size + size / 2) {
    size = found->first;
    block = found->second;
    waiting_ -= size;
    spares_.erase(found);
  }
  live_ += size;
  most_ = std::max(most_, live_);
  while (live_ + waiting_ > most_) {  // the largest first: the fewest calls of the system
    const auto last = std::prev(spares_.end());
    unmap_pages(last->second, last->first);
    waiting_ -= last->first;
    spares_.erase(last);
  }
  return block;
}

void PagePool::give(std::byte* block, size_t size) {
  const std::lock_guard lock(mutex_);
  spares_.emplace(size, block);
  waiting_ += size;
  live_ -= size;
  if (live_ <= most_ / 8) release();
}

void PagePool::release() {
  for (const auto& [size, block] : spares_) unmap_pages(block, size);
  spares_.clear();
  waiting_ = 0;
  most_ = live_;
}

}  // namespace tessera::tensor

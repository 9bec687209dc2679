#include "tensor/page_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "base/fail.h"

namespace tessera::tensor {
namespace {

constexpr size_t kHugePage = size_t{1} << 21;
// Fewer bytes stay untouched: each offered page costs its next writer a page-table entry.
constexpr size_t kWorthOffering = size_t{1} << 25;

size_t huge_pages(size_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }

// Moves whole huge pages from a block to another, each alone because a block may span several
// mappings. Returns the bytes moved before the system refused.
size_t move_pages(std::byte* from, std::byte* to, size_t size) {
  for (size_t at = 0; at < size; at += kHugePage)
    if (::mremap(from + at, kHugePage, kHugePage, MREMAP_MAYMOVE | MREMAP_FIXED, to + at) ==
        MAP_FAILED) {
      // Fails if pages are still mapped: a kernel may have unmapped them before the refusal.
      const void* const again = ::mmap(to + at, kHugePage, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
      require(again != MAP_FAILED || errno == EEXIST, ErrorCode::memory,
              "the system took {} bytes of pages and gives none back; close other programs",
              kHugePage);
      return at;
    }
  return size;
}

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
  std::byte* const block = block_of(size);
  if (block == nullptr) return nullptr;
  return {block, [self = shared_from_this(), size](void* pages) {
            self->give(static_cast<std::byte*>(pages), size);
          }};
}

std::byte* PagePool::block_of(size_t& size) {
  const std::lock_guard lock(mutex_);
  if (idle_) {
    idle_ = false;
    most_before_ = std::max(most_, most_before_ - most_before_ / 8);
    most_ = live_;
  }
  std::byte* block = reused(size);
  const bool fresh = block == nullptr;
  if (fresh) {
    block = map_pages(size, kHugePage);
    if (block == nullptr) return nullptr;
    ::madvise(block, size, MADV_HUGEPAGE);
  }
  live_ += size;
  most_ = std::max(most_, live_);
  trim(block, fresh ? size : 0);
  return block;
}

void PagePool::release() {
  const std::lock_guard lock(mutex_);
  drop();
}

size_t PagePool::live() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

size_t PagePool::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_;
}

// A waiting block of at most one and a half times the size, or null.
std::byte* PagePool::reused(size_t& size) {
  const auto it = spares_.lower_bound(size);
  if (it == spares_.end() || it->first > size + size / 2) return nullptr;
  std::byte* const block = it->second;
  size = it->first;
  waiting_ -= size;
  spares_.erase(it);
  return block;
}

// Reduces waiting pages to the limit; the largest blocks are cut first. Cut pages replace the first
// of the `size` bytes of `block`, which must be unwritten.
void PagePool::trim(std::byte* block, size_t size) {
  for (const size_t may = std::max(most_, most_before_); live_ + waiting_ > may;) {
    const auto last = std::prev(spares_.end());
    const auto [spare, from] = *last;
    const size_t cut = std::min(spare, huge_pages(live_ + waiting_ - may));
    spares_.erase(last);
    waiting_ -= spare;
    const size_t whole_pages = std::min(cut, size) / kHugePage * kHugePage;
    const size_t moved_bytes = move_pages(from, block, whole_pages);
    block += moved_bytes;
    size = moved_bytes == whole_pages ? size - moved_bytes : 0;
    if (cut > moved_bytes) unmap_pages(from + moved_bytes, cut - moved_bytes);
    if (spare > cut) spares_.emplace(spare - cut, from + cut);
    waiting_ += spare - cut;
  }
}

void PagePool::give(std::byte* block, size_t size) {
  const std::lock_guard lock(mutex_);
  const auto it = spares_.emplace(size, block);
  waiting_ += size;
  live_ -= size;
  if (live_ > most_ / 8 || waiting_ < kWorthOffering) return;
  const auto first = idle_ ? it : spares_.begin();
  const auto end = idle_ ? std::next(it) : spares_.end();
  idle_ = true;
  const bool offered = std::all_of(first, end, [](const auto& spare) {
    return ::madvise(spare.second, spare.first, MADV_FREE) == 0;
  });
  if (!offered) drop();
}

void PagePool::drop() {
  for (const auto& [size, block] : spares_) unmap_pages(block, size);
  spares_.clear();
  waiting_ = 0;
}

}  // namespace tessera::tensor

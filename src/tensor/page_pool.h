#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

namespace tessera::tensor {

/// Fresh pages, zero at first touch, aligned to `alignment` (a power of two); null if the system
/// has none. No page follows the end, so a huge page cannot extend the block.
std::byte* map_pages(size_t size, size_t alignment);
/// Unmaps the pages.
void unmap_pages(std::byte* pages, size_t size);
/// `bytes` in whole pages.
size_t page_bytes(size_t bytes);

/// Recycles the pages of large temporary blocks, so that the system need not zero new pages. A
/// freed block waits for the next block of about the same size; pages beyond the limit become part
/// of a new block. Waiting pages and pages in use together never exceed the peak of pages in use.
/// When less than an eighth of the peak is in use, and 32 MiB or more wait, waiting pages are
/// offered to the system (MADV_FREE): the system may take them, otherwise the next computation uses
/// them. Thread-safe.
class PagePool : public std::enable_shared_from_this<PagePool> {
 public:
  /// A block of at least `bytes`, aligned to 2 MiB; null if the system has no memory.
  std::shared_ptr<void> take(size_t bytes);
  /// Unmaps all waiting pages.
  void release();
  /// Bytes in use, and waiting bytes.
  size_t live() const;
  size_t waiting() const;

 private:
  std::byte* block_of(size_t& size);
  std::byte* reused(size_t& size);
  void trim(std::byte* block, size_t size);
  void give(std::byte* block, size_t size);
  void drop();
  mutable std::mutex mutex_;
  bool idle_ = false;
  size_t live_ = 0, waiting_ = 0;
  size_t most_ = 0, most_before_ = 0;  // peak use since the pool was idle, and before
  std::multimap<size_t, std::byte*> spares_;
};

}  // namespace tessera::tensor

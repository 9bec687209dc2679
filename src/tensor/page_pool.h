#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

namespace tessera::tensor {

/// Fresh pages, zeros when they are first touched, at a multiple of `alignment` (a power of two);
/// null where the system has none. No page stands behind the end, that a huge one could fill.
std::byte* map_pages(size_t size, size_t alignment);
/// Gives them back.
void unmap_pages(std::byte* pages, size_t size);
/// `bytes` in whole pages.
size_t page_bytes(size_t bytes);

/// Pages of large blocks that come and go while something computes: one that is freed waits for the
/// next of about its size, so that the system need not fill new ones with zeros. What waits and
/// what is in use are never more than was in use at once, and when less than an eighth of that is
/// in use any more, all that wait go back. Thread-safe.
class PagePool : public std::enable_shared_from_this<PagePool> {
 public:
  /// A block of at least `bytes`, at a multiple of 2 MiB; null where the system has no memory.
  std::shared_ptr<void> take(size_t bytes);
  /// Bytes in use, and those that wait.
  size_t live() const;
  size_t waiting() const;

 private:
  std::byte* reused(size_t& size);
  void give(std::byte* block, size_t size);
  void release();
  mutable std::mutex mutex_;
  size_t live_ = 0, most_ = 0, waiting_ = 0;
  std::multimap<size_t, std::byte*> spares_;
};

}  // namespace tessera::tensor

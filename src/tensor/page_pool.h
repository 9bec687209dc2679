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

/// Pages of large blocks that come and go while something computes, so that the system need not
/// fill new ones with zeros: one that is freed waits for the next of about its size, and what would
/// be too much beside a new block becomes the pages of that. What waits and what is in use are
/// never more than was in use at once. When less than an eighth of that is in use any more, what
/// waits, if it is 32 MiB or more, is the system's if it needs memory (MADV_FREE), and serves the
/// next that compute if not. Thread-safe.
class PagePool : public std::enable_shared_from_this<PagePool> {
 public:
  /// A block of at least `bytes`, at a multiple of 2 MiB; null where the system has no memory.
  std::shared_ptr<void> take(size_t bytes);
  /// All that wait go back.
  void release();
  /// Bytes in use, and those that wait.
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
  size_t most_ = 0, most_before_ = 0;  // in use at once since it was idle, and before that
  std::multimap<size_t, std::byte*> spares_;
};

}  // namespace tessera::tensor

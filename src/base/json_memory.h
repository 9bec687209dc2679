#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::base {

/// Limits the memory of each JSON tree that the calling thread parses, until destruction.
class BindJsonMemory {
 public:
  /// Bytes of RunOptions::memory_budget; 0: only the limit of every tree.
  explicit BindJsonMemory(int64_t budget);
  ~BindJsonMemory();
  BindJsonMemory(const BindJsonMemory&) = delete;
  BindJsonMemory& operator=(const BindJsonMemory&) = delete;

 private:
  size_t before_;
};

}  // namespace tessera::base

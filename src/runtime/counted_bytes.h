#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "tensor/storage.h"

namespace tessera::runtime {

/// Counts bytes in a memory tracker, if not null, until destruction.
class CountedBytes {
 public:
  CountedBytes(std::shared_ptr<tensor::MemoryTracker> memory, tensor::MemoryClass memory_class,
               int64_t bytes)
      : memory_(std::move(memory)), class_(memory_class), bytes_(bytes) {
    if (memory_) memory_->add(class_, bytes_);
  }
  ~CountedBytes() {
    if (memory_) memory_->add(class_, -bytes_);
  }
  CountedBytes(const CountedBytes&) = delete;
  CountedBytes& operator=(const CountedBytes&) = delete;

 private:
  const std::shared_ptr<tensor::MemoryTracker> memory_;
  const tensor::MemoryClass class_;
  const int64_t bytes_;
};

}  // namespace tessera::runtime

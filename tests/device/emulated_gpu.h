#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tensor/device_pool.h"

namespace tessera::device {

/// A GPU that is none, for tests: Device::cuda is memory of this process that nobody may touch
/// except while one of the runtime's copies or a kernel runs, so that host code which reads or
/// writes it by itself faults. Its kernels are the reference ones of the CPU, so results are the
/// reference's bit by bit; each checks first that the arrays it was given are the device's.
class EmulatedGpu {
 public:
  explicit EmulatedGpu(int64_t capacity = int64_t{2} << 30);
  ~EmulatedGpu();
  EmulatedGpu(const EmulatedGpu&) = delete;
  EmulatedGpu& operator=(const EmulatedGpu&) = delete;

  /// Kernels and copies so far.
  int64_t kernels() const;
  int64_t uploads() const;
  int64_t downloads() const;
  /// How often recorded work was done again.
  int64_t replays() const;
  tensor::DevicePool& pool() const { return *pool_; }
  class Arena& arena() const {
    return *arena_;
  }

 private:
  class Arena* arena_ = nullptr;  // the pool's
  std::shared_ptr<tensor::DevicePool> pool_;
};

/// The memory of the one emulated GPU of the process.
class Arena {
 public:
  explicit Arena(int64_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* begin() const { return begin_; }
  int64_t bytes() const { return bytes_; }
  bool holds(const void* address) const;
  /// Opens the memory while one of these lives, on any thread.
  class Open {
   public:
    explicit Open(Arena& arena);
    ~Open();
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;

   private:
    Arena& arena_;
  };

 private:
  std::byte* begin_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace tessera::device

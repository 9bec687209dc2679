#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace tessera::kernels {

/// 64-byte aligned scratch memory of the calling thread, kept for later products.
class Scratch {
 public:
  /// Throws Error(memory) on failure.
  std::byte* at_least(int64_t bytes);

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
  int64_t size_ = 0;
};
/// Index 0: packed rows; index 1: data shared by a whole call; index 2: data kept by a sweep; 3 to
/// 5: prepared pixels, patches and sums of a convolution, which calls products.
Scratch& thread_scratch(int index);

}  // namespace tessera::kernels

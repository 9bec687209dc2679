#include "kernels/scratch.h"

#include "base/fail.h"

namespace tessera::kernels {

std::byte* Scratch::at_least(int64_t bytes) {
  if (bytes > size_) {
    const int64_t size = (bytes + 8191) / 4096 * 4096;  // loads may run a step ahead
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, static_cast<size_t>(size))));
    size_ = data_ ? size - 4096 : 0;
    require(data_ != nullptr, ErrorCode::memory,
            "a product needs {} bytes of scratch memory; free some", size);
  }
  return data_.get();
}

Scratch& thread_scratch(int index) {
  static thread_local Scratch scratch[6];  // results never depend on the old contents
  return scratch[index];
}

}  // namespace tessera::kernels

#pragma once

#include <cstdint>
#include <memory>

#include "tensor/storage.h"

namespace tessera::kernels {

/// The device of these kernels.
inline constexpr tensor::Device kKernelDevice = tensor::Device::cuda;

/// Device memory from the pool for a call. The next user of the memory works later on the same
/// stream; memory taken while recording stays with the recording.
class DeviceScratch {
 public:
  /// Empty for 0 bytes. Throws Error(memory).
  explicit DeviceScratch(int64_t bytes) {
    if (bytes > 0)
      memory_ =
          tensor::Storage::allocate(bytes, tensor::Device::cuda, tensor::MemoryClass::activations);
  }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(memory_ ? memory_->data() : nullptr);
  }

 private:
  std::shared_ptr<tensor::Storage> memory_;
};

}  // namespace tessera::kernels

#pragma once

#include <cstdint>
#include <memory>

#include "tensor/storage.h"

namespace tessera::kernels {

/// Memory of the device for one call, out of its pool: whoever gets it next works later on the same
/// stream, and what is taken while work is recorded stays with the recording.
class DeviceScratch {
 public:
  /// Nothing for 0 bytes. Throws Error(memory).
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

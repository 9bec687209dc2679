#pragma once

#include <memory>

#include "load/tensor_set.h"
#include "nn/weights.h"

namespace tessera::load {

/// Packed weights of a process, shared by its ranks and models: each is packed once per (file,
/// name, slice, element type, instruction set, device) while anybody uses it, and freed with its
/// last user. Thread-safe; who asks for what another thread is packing waits for it.
class WeightStore {
 public:
  WeightStore();
  /// Weights of a model over `tensors`. What they hand out may outlive them and the store. A tensor
  /// is read when it is packed, and what was read is freed then.
  /// On a GPU each weight is uploaded once. What get() gives is shared in the same way.
  std::shared_ptr<const nn::Weights> open(TensorSet tensors,
                                          tensor::Device device = tensor::Device::cpu) const;
  /// Packed weights that somebody uses now.
  int64_t live() const;

  struct Shelf;

 private:
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace tessera::load

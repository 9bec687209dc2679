#pragma once

#include <memory>

#include "load/tensor_set.h"
#include "nn/weights.h"

namespace tessera::load {

/// Packed weights of a process, shared by ranks and models: each is packed once per (file, name,
/// slice, element type, instruction set, device) while in use, and freed with the last user.
/// Thread-safe; concurrent requests for a weight wait for the packing thread.
class WeightStore {
 public:
  WeightStore();
  /// Weights of a model over `tensors`. Returned weights may outlive this object and the store. A
  /// tensor is read for packing and then freed. On a GPU each weight is uploaded once. Results of
  /// get() are shared in the same way.
  std::shared_ptr<const nn::Weights> open(TensorSet tensors,
                                          tensor::Device device = tensor::Device::cpu) const;
  /// Number of packed weights in use.
  int64_t live() const;

  struct Shelf;

 private:
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace tessera::load

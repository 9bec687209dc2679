#pragma once

#include <memory>
#include <vector>

#include "fused/symmetric_heap.h"
#include "tensor/tensor.h"

namespace tessera::fused {

/// A heap with every part writable by this process: data is in place when the call returns.
class DirectHeap final : public SymmetricHeap {
 public:
  /// `parts`: by rank; for other ranks any part of the memory from the same begin.
  DirectHeap(comm::Communicator& ranks, std::vector<tensor::Tensor> parts);
  void put(const Transfer& transfer) override;
  void signal(const Transfer& transfer) override;
  void put_signal(const Transfer& transfer) override;

 private:
  std::byte* at(int rank, int64_t offset) const;
  std::vector<tensor::Tensor> parts_;
};

}  // namespace tessera::fused

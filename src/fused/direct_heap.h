#pragma once

#include <memory>
#include <vector>

#include "fused/symmetric_heap.h"
#include "tensor/tensor.h"

namespace tessera::fused {

/// A heap whose every part this process can write: what is put is there when the call returns.
class DirectHeap final : public SymmetricHeap {
 public:
  /// `parts`: by rank; of others any part of the memory that begins where theirs does.
  DirectHeap(comm::Communicator& ranks, std::vector<tensor::Tensor> parts);
  void put(const Transfer& transfer) override;
  void signal(const Transfer& transfer) override;
  void put_signal(const Transfer& transfer) override;

 private:
  std::byte* at(int rank, int64_t offset) const;
  std::vector<tensor::Tensor> parts_;
};

}  // namespace tessera::fused

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

/// What a heap has on each rank; its first `zeroed` bytes and those from `flags` on begin as zero.
struct HeapSize {
  int64_t bytes = 0, zeroed = 0, flags = 0;
  Layout layout{};  ///< what it is for, if it is
};
/// Of the symmetric buffer of a layer.
HeapSize heap_of(const Layout& layout);

/// A heap for the ranks of `group`, which outlives it: threads of one process, or
/// processes of one host, which share memory without a name: none is left when the last of them has
/// ended, however it ends. Counts as buffers of the caller's scope. All ranks call it. On meta it
/// is only counted. Throws Error(plan) for ranks on several hosts, and Error(rank) where they ask
/// for heaps that differ.
std::unique_ptr<SymmetricHeap> open_heap(comm::Communicator& group, const HeapSize& size,
                                         tensor::Device where);

}  // namespace tessera::fused

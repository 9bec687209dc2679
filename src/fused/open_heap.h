#pragma once

#include <memory>

#include "fused/symmetric_heap.h"
#include "tensor/tensor.h"

namespace tessera::fused {

/// What a heap has on each rank; its first `zeroed` bytes and those from `flags` on begin as zero.
struct HeapSize {
  int64_t bytes = 0, zeroed = 0, flags = 0;
  Layout layout{};  ///< what it is for, if it is
};
/// Of the symmetric buffer of a layer.
HeapSize heap_of(const Layout& layout);

/// A heap for the ranks of `group`, which outlives it. Threads of one process and processes of one
/// host share memory without a name: none is left when the last of them has ended, however it ends.
/// Between hosts messages of the group's transport carry what is put (fused/message_heap); with
/// TESSERA_HEAP=messages in the environment between all ranks. Counts as buffers of the caller's
/// scope, which messages are not. All ranks call it. On meta it is only counted. Throws Error(rank)
/// where they ask for heaps that differ.
std::unique_ptr<SymmetricHeap> open_heap(comm::Communicator& group, const HeapSize& size,
                                         tensor::Device where);

}  // namespace tessera::fused

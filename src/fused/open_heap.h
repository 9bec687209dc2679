#pragma once

#include <memory>

#include "fused/symmetric_heap.h"
#include "tensor/tensor.h"

namespace tessera::fused {

/// A heap on each rank, of equal lanes; the first `zeroed` bytes of a lane and those from `flags`
/// on begin as zero.
struct HeapSize {
  int64_t bytes = 0, zeroed = 0, flags = 0;
  Layout layout{};  ///< its layout, if any
  int lanes = 1;

  /// The offset of a lane.
  int64_t begin(int lane) const { return bytes / lanes * lane; }
};
/// The heap of a layer's symmetric buffer, or of several: each lane in whole lines.
HeapSize heap_of(const Layout& layout, int lanes = 1);

/// A heap for the ranks of `group`, which must outlive it. Threads of a process and processes of a
/// host share memory without a name, gone after the last of them ends in any way. Between hosts,
/// messages of the group's transport carry the data (fused/message_heap); with
/// TESSERA_HEAP=messages in the environment, between all ranks. Counts as buffers of the caller's
/// scope; messages do not. All ranks call. On meta only counted. Throws Error(rank) for different
/// heaps.
std::unique_ptr<SymmetricHeap> open_heap(comm::Communicator& group, const HeapSize& size,
                                         tensor::Device device);

}  // namespace tessera::fused

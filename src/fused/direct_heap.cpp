#include "fused/direct_heap.h"

#include <cstring>
#include <utility>

#include "fused/queue.h"

namespace tessera::fused {

DirectHeap::DirectHeap(comm::Communicator& ranks, std::vector<tensor::Tensor> parts)
    : SymmetricHeap(&ranks, ranks.rank(),
                    static_cast<std::byte*>(parts[static_cast<size_t>(ranks.rank())].raw())),
      parts_(std::move(parts)) {}

std::byte* DirectHeap::at(int rank, int64_t offset) const {
  return static_cast<std::byte*>(parts_[static_cast<size_t>(rank)].raw()) + offset;
}

void DirectHeap::put(const Transfer& transfer) {
  if (transfer.bytes > 0)
    std::memcpy(at(transfer.to, transfer.at), memory() + transfer.from,
                static_cast<size_t>(transfer.bytes));
}

void DirectHeap::signal(const Transfer& transfer) {
  SharedWords::store(reinterpret_cast<uint64_t*>(at(transfer.to, transfer.word)), transfer.value);
}

void DirectHeap::put_signal(const Transfer& transfer) {
  put(transfer);
  signal(transfer);
}

}  // namespace tessera::fused

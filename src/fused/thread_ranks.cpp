#include "fused/thread_ranks.h"

#include <cstring>
#include <utility>

#include "fused/queue.h"

namespace tessera::fused {

ThreadRanks::ThreadRanks(const Layout& layout) : layout_(layout) {
  for (int r = 0; r < layout.ranks; ++r) {
    buffers_.push_back(tensor::Tensor::zeros({layout.bytes()}, tensor::DType::u8,
                                             tensor::Device::cpu, tensor::MemoryClass::buffers));
    wires_.emplace_back(*this, r);
  }
}

std::byte* ThreadRanks::buffer(int rank) const {
  return static_cast<std::byte*>(buffers_[static_cast<size_t>(rank)].raw());
}

void ThreadRanks::deliver(int from, const Transfer& transfer) const {
  std::byte* const to = buffer(transfer.to);
  if (transfer.rows > 0)
    std::memcpy(to + transfer.at, buffer(from) + transfer.from,
                static_cast<size_t>(transfer.rows * layout_.row_bytes));
  SharedWords::store(reinterpret_cast<uint64_t*>(to + transfer.word), transfer.value);
}

void ThreadRanks::fail(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = std::move(error);
  failed_ = true;
}

void ThreadRanks::check() const {
  if (!failed_) return;
  const std::lock_guard lock(mutex_);
  std::rethrow_exception(failure_);
}

}  // namespace tessera::fused

#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "fused/direct_heap.h"

namespace tessera::fused {

/// A heap between hosts. Data for memory outside this process travels as a message, and the
/// delivering thread writes it, independent of the receiver's computation; data from one rank to
/// another arrives in order. The sender's bytes are read before a call returns.
class MessageHeap final : public SymmetricHeap {
 public:
  /// As DirectHeap; `parts` are undefined for ranks of other hosts. All ranks make a heap at once;
  /// each is writable once all exist.
  MessageHeap(comm::Communicator& ranks, std::vector<tensor::Tensor> parts);
  void put(const Transfer& transfer) override;
  void signal(const Transfer& transfer) override;
  void put_signal(const Transfer& transfer) override;

 private:
  enum class Contents : int32_t { bytes = 1, word = 2, both = 3 };
  struct Head;
  class Mailbox;
  bool near(int rank) const { return near_[static_cast<size_t>(rank)]; }
  void post(const Transfer& transfer, Contents contents);

  std::vector<bool> near_;
  DirectHeap direct_;
  std::mutex mutex_;  // guards the channel
  std::unique_ptr<comm::Communicator> channel_;
};

}  // namespace tessera::fused

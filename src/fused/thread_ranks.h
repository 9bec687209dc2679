#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "fused/wire.h"
#include "tensor/tensor.h"

namespace tessera::fused {

/// Ranks of one operator that are threads of this process: their buffers, how far they have come,
/// and the first failure of any. After a failure they end, and are not used again.
class ThreadRanks {
 public:
  explicit ThreadRanks(const Layout& layout);
  ThreadRanks(const ThreadRanks&) = delete;
  ThreadRanks& operator=(const ThreadRanks&) = delete;

  const Layout& layout() const { return layout_; }
  std::byte* buffer(int rank) const;
  /// Of a rank; copies at once.
  Wire& wire(int rank) { return wires_[static_cast<size_t>(rank)]; }
  /// Rows of a transfer into their place, then its word.
  void deliver(int from, const Transfer& transfer) const;

  /// A rank has done something.
  void advance() { progress_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }
  /// The first failure stays.
  void fail(std::exception_ptr error);
  /// Throws the failure of whoever failed.
  void check() const;

 private:
  class Direct final : public Wire {
   public:
    Direct(const ThreadRanks& ranks, int rank) : ranks_(ranks), rank_(rank) {}
    void put(const Transfer& transfer) override { ranks_.deliver(rank_, transfer); }

   private:
    const ThreadRanks& ranks_;
    int rank_;
  };

  Layout layout_;
  std::vector<tensor::Tensor> buffers_;
  std::vector<Direct> wires_;
  std::atomic<uint64_t> progress_{0};
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::exception_ptr failure_;  // under mutex
};

}  // namespace tessera::fused

#pragma once

#include "fused/symmetric_heap.h"

namespace tessera::fused {

/// A part of a heap for one of several operators beside each other: no word and no row of one is
/// at a place of another.
class HeapLane final : public SymmetricHeap {
 public:
  /// `begin`: the lane's offset in the heap of every rank; `whole` must outlive this object.
  HeapLane(SymmetricHeap& whole, int64_t begin)
      : SymmetricHeap(whole, begin), whole_(whole), begin_(begin) {}

  void put(const Transfer& transfer) override { whole_.put(moved(transfer)); }
  void signal(const Transfer& transfer) override { whole_.signal(moved(transfer)); }
  void put_signal(const Transfer& transfer) override { whole_.put_signal(moved(transfer)); }

 private:
  Transfer moved(Transfer transfer) const {
    transfer.from += begin_;
    transfer.at += begin_;
    transfer.word += begin_;
    return transfer;
  }
  SymmetricHeap& whole_;
  int64_t begin_;
};

}  // namespace tessera::fused

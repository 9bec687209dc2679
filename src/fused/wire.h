#pragma once

#include "fused/dispatcher.h"

namespace tessera::fused {

/// Carries rows into the buffers of other ranks, whoever and wherever they are.
class Wire {
 public:
  virtual ~Wire() = default;
  /// The transfer's rows from my buffer into that of transfer.to, then its word: who sees the word
  /// sees the rows. They may travel after this returns, and pass others on their way; my rows stay
  /// as they are until their receiver has answered. Thread-safe.
  virtual void put(const Transfer& transfer) = 0;
};

}  // namespace tessera::fused

#pragma once

#include <cstdint>
#include <span>

#include "nn/segments.h"
#include "tensor/tensor.h"

namespace tessera::nn {

/// Ranks with the other tokens of a view's sequences. All make the same calls.
class SequencePeers {
 public:
  virtual ~SequencePeers() = default;
  /// Sums whole numbers over the ranks, element by element, in place, with equal results.
  virtual void sum(std::span<int64_t> values) = 0;
  virtual void max(std::span<int64_t> values) = 0;
  /// Rows [own tokens, c] of every rank -> those of all, in the order of tokens().
  virtual tensor::Tensor gather(const tensor::Tensor& own) = 0;
  /// The tokens of all ranks, rank by rank.
  virtual const Segments& tokens() const = 0;
  /// The begin of the own tokens among them.
  virtual int64_t first() const = 0;
};

}  // namespace tessera::nn

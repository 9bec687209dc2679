#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "nn/segments.h"
#include "tensor/tensor.h"

namespace tessera::nn {

/// Which of how many parts every layer's weights are cut into: heads, and the widths of
/// MLPs (tensor parallelism, Shoeybi et al. 2019).
struct Shard {
  int index = 0, count = 1;
};

/// What a rank takes of a stored tensor: ranges of one axis, side by side. None: all of it.
struct Cut {
  int axis = 0;
  std::vector<Range> ranges{};

  bool whole() const { return ranges.empty(); }
  /// What is left of the shape of the whole.
  tensor::Shape of(const tensor::Shape& shape) const;
};

/// How a layer [outputs, inputs] is spread over shards. By its outputs: each has some of them. By
/// its inputs: the products of all are summed (nn::Reduce), before the bias. Else each has it all.
struct Split {
  /// Channels that are shared out by themselves, `unit` neighbours together: a projection that is
  /// fused with others, in heads.
  struct Piece {
    int64_t width = 0, unit = 1;
  };

  std::vector<Piece> pieces{};  ///< side by side; none: not split
  bool by_inputs = false;

  static Split outputs(std::vector<Piece> pieces) { return {std::move(pieces), false}; }
  static Split inputs(std::vector<Piece> pieces) { return {std::move(pieces), true}; }
  /// The part of a shard. Throws Error(plan) for a piece with fewer units than there are shards.
  Cut of(const Shard& shard) const;
};

/// What a cut leaves of a dense tensor, on its way to be packed; where it leaves all, that itself.
tensor::Tensor taken(const tensor::Tensor& whole, const Cut& cut);

}  // namespace tessera::nn

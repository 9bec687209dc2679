#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "nn/segments.h"
#include "tensor/tensor.h"

namespace tessera::nn {

/// The index and number of parts of every layer's weights: heads, and the widths of MLPs (tensor
/// parallelism, Shoeybi et al. 2019).
struct Shard {
  int index = 0, count = 1;
};

/// A rank's part of a stored tensor: ranges of an axis, side by side. None: all.
struct Cut {
  int axis = 0;
  std::vector<Range> ranges{};

  bool whole() const { return ranges.empty(); }
  /// The shape after the cut.
  tensor::Shape of(const tensor::Shape& shape) const;
};

/// The split of a layer [outputs, inputs] over shards. By outputs: each has some. By inputs:
/// products are summed (nn::Reduce), before the bias. Otherwise each has all.
struct Split {
  /// Channels with a split of their own, in units of `unit` neighbours: a projection inside a fused
  /// layer, in heads.
  struct Piece {
    int64_t width = 0, unit = 1;
  };

  std::vector<Piece> pieces{};  ///< side by side; none: not split
  bool by_inputs = false;

  static Split outputs(std::vector<Piece> pieces) { return {std::move(pieces), false}; }
  static Split inputs(std::vector<Piece> pieces) { return {std::move(pieces), true}; }
  /// The part of a shard. Throws Error(plan) for a piece with fewer units than shards.
  Cut of(const Shard& shard) const;
};

/// The part of a dense tensor after a cut, before packing; the tensor itself for a full cut.
tensor::Tensor taken(const tensor::Tensor& whole, const Cut& cut);

}  // namespace tessera::nn

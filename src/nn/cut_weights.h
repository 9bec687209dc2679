#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nn/packing_weights.h"
#include "nn/segments.h"

namespace tessera::nn {

/// What a rank takes of a stored tensor: some ranges of one axis, side by side. Fused projections
/// have a range in each of their parts (q, k, v; gate, up).
struct Cut {
  int axis = 0;
  int64_t full = 0;  ///< size of the axis as stored
  std::vector<Range> ranges;
};

/// Weights of which a rank holds a part (tensor parallelism): who asks for a tensor names the sizes
/// of the part, the shapes as stored are checked. Lives no longer than `whole`.
class CutWeights : public PackingWeights {
 public:
  /// `cut`: by name; nothing: every rank has the whole tensor.
  CutWeights(const Weights& whole, std::function<std::optional<Cut>(const std::string&)> cut)
      : whole_(whole), cut_(std::move(cut)) {}

  bool has(const std::string& name) const override { return whole_.has(name); }
  tensor::Tensor get(const std::string& name, const tensor::Shape& shape) const override;
  ops::Weight matrix(const std::string& name, int64_t n, int64_t k,
                     ops::DType compute) const override;
  ops::Weight paired(const std::string& gate, const std::string& up, int64_t n, int64_t k,
                     ops::DType compute) const override;
  ops::ConvWeight conv(const std::string& weight, const std::string& bias,
                       const tensor::Shape& shape, ops::DType compute) const override;
  tensor::Tensor vector(const std::string& name, int64_t n) const override;

 private:
  const Weights& whole_;
  std::function<std::optional<Cut>(const std::string&)> cut_;
};

}  // namespace tessera::nn

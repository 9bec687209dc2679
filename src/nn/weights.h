#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "nn/split.h"
#include "ops/conv.h"
#include "ops/matmul.h"
#include "tensor/tensor.h"

namespace tessera::nn {

/// The named tensors of a model, from any source: files (load/weight_store.h) or nothing at
/// all (load/meta_weights.h). Every getter checks the shape and throws Error(model) with
/// file, tensor, found and expected. Sizes are those of the whole tensor; a cut selects a
/// part.
class Weights {
 public:
  virtual ~Weights() = default;
  /// The part for split layers.
  virtual Shard shard() const { return {}; }
  /// True if there is a tensor of this name.
  virtual bool has(const std::string& name) const = 0;
  /// The stored tensor (any dtype), possibly shared with others: read only.
  virtual tensor::Tensor get(const std::string& name, const tensor::Shape& shape) const = 0;
  /// A matrix [n, k], packed for products in `compute` (f32 or bf16).
  virtual ops::Weight matrix(const std::string& name, int64_t n, int64_t k, ops::DType compute,
                             const Cut& cut = {}) const = 0;
  /// Two matrices [n, k], packed together for SwiGLU; the cut applies to both.
  virtual ops::Weight paired(const std::string& gate, const std::string& up, int64_t n, int64_t k,
                             ops::DType compute, const Cut& cut = {}) const = 0;
  /// A filter [out, in, kh, kw] and its bias [out] ("": none), packed for convolutions in
  /// `compute`.
  virtual ops::ConvWeight conv(const std::string& weight, const std::string& bias,
                               const tensor::Shape& shape, ops::DType compute) const = 0;
  /// A vector [n], widened to f32.
  virtual tensor::Tensor vector(const std::string& name, int64_t n, const Cut& cut = {}) const = 0;
  /// As get(), for a table with reads of some rows by a request.
  virtual tensor::Tensor table(const std::string& name, const tensor::Shape& shape) const {
    return get(name, shape);
  }
  /// The source of a matrix or table at each use, if it is on meta here; null: the elements are
  /// here.
  virtual std::shared_ptr<const Weights> at_use() const { return nullptr; }
};

}  // namespace tessera::nn

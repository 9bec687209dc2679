#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "nn/split.h"
#include "ops/conv.h"
#include "ops/matmul.h"
#include "tensor/tensor.h"

namespace tessera::nn {

/// The named tensors that a model is made from, wherever they come from: files
/// (load/weight_store.h) or nothing at all (load/meta_weights.h). Every getter checks the shape and
/// throws Error(model) naming file, tensor, found and expected. Sizes are those of the whole
/// tensor; a cut says what is taken of it.
class Weights {
 public:
  virtual ~Weights() = default;
  /// The part that layers are to take which are split.
  virtual Shard shard() const { return {}; }
  /// Whether there is a tensor of this name.
  virtual bool has(const std::string& name) const = 0;
  /// The tensor as stored (any dtype), which others may share: read only.
  virtual tensor::Tensor get(const std::string& name, const tensor::Shape& shape) const = 0;
  /// A matrix [n, k], packed for products in `compute` (f32 or bf16).
  virtual ops::Weight matrix(const std::string& name, int64_t n, int64_t k, ops::DType compute,
                             const Cut& cut = {}) const = 0;
  /// Two matrices [n, k], packed together for SwiGLU; the cut is of either.
  virtual ops::Weight paired(const std::string& gate, const std::string& up, int64_t n, int64_t k,
                             ops::DType compute, const Cut& cut = {}) const = 0;
  /// A filter [out, in, kh, kw] and its bias [out] ("": none), packed for convolutions in
  /// `compute`.
  virtual ops::ConvWeight conv(const std::string& weight, const std::string& bias,
                               const tensor::Shape& shape, ops::DType compute) const = 0;
  /// A vector [n], widened to f32.
  virtual tensor::Tensor vector(const std::string& name, int64_t n, const Cut& cut = {}) const = 0;
  /// As get(), of a table of which a request reads some rows.
  virtual tensor::Tensor table(const std::string& name, const tensor::Shape& shape) const {
    return get(name, shape);
  }
  /// Who is to be asked for the elements of a matrix or table each time that they are used, since
  /// here it is on meta; null: the elements are here.
  virtual std::shared_ptr<const Weights> at_use() const { return nullptr; }
};

}  // namespace tessera::nn

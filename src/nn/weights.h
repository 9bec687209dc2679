#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "nn/split.h"
#include "ops/conv.h"
#include "ops/matmul.h"
#include "tensor/tensor.h"

namespace tessera::nn {

/// A weight that a layer asks for. The sizes are those of the whole tensor; a cut selects a part.
struct WeightRequest {
  /// The form in memory.
  enum class Form {
    stored,  ///< the stored tensor, of any dtype, possibly shared with others: read only
    table,   ///< as stored, with reads of some rows by a request
    vector,  ///< [n], widened to f32
    matrix,  ///< [n, k], packed for products in `compute` (f32 or bf16)
    paired,  ///< two matrices [n, k], packed together for SwiGLU; the cut applies to both
    conv,    ///< a filter [out, in, kh, kw], or a video's [out, in, frames, kh, kw], with its bias
             ///< [out], packed for convolutions
  };

  Form form = Form::stored;
  std::string name;      ///< in a pair: the gate
  std::string second{};  ///< in a pair: up; beside a filter: the bias, "" for none
  tensor::Shape shape{};
  ops::DType compute = ops::DType::f32;  ///< filters: also i8
  Cut cut{};

  bool packs() const { return form == Form::matrix || form == Form::paired; }
};

/// A weight in the form asked for; the other members are empty.
struct FetchedWeight {
  tensor::Tensor tensor{};     ///< stored, table, vector
  ops::Weight packed{};        ///< matrix, paired
  ops::ConvWeight filter{};    ///< conv
  ops::FrameFilters frames{};  ///< conv of a video
  /// Fetches the elements at each use, if a matrix or table is on meta here; null: they are here.
  std::function<FetchedWeight()> at_use{};
};

class InputRecord;

/// The named tensors of a model, from any source: files (load/weight_store.h) or nothing at
/// all (load/meta_weights.h). Decorators stand over a source: kept, sharded, merged, beside pairs.
class Weights {
 public:
  using Form = WeightRequest::Form;
  virtual ~Weights() = default;
  /// The part for split layers.
  virtual Shard shard() const { return {}; }
  /// True if there is a tensor of this name.
  virtual bool has(const std::string& name) const = 0;
  /// True if the inputs of the product with this weight are scaled (nn/input_records.h).
  virtual bool smoothed(const std::string&) const { return false; }
  /// Where the layer with this weight records its inputs; null: nowhere.
  virtual std::shared_ptr<InputRecord> record(const std::string&) const { return nullptr; }
  /// Checks the shape. Throws Error(model) with file, tensor, found and expected.
  virtual FetchedWeight fetch(const WeightRequest& request) const = 0;

  tensor::Tensor get(const std::string& name, const tensor::Shape& shape) const {
    return fetch({.name = name, .shape = shape}).tensor;
  }
  tensor::Tensor vector(const std::string& name, int64_t n, const Cut& cut = {}) const {
    return fetch({.form = Form::vector, .name = name, .shape = {n}, .cut = cut}).tensor;
  }
  ops::Weight matrix(const std::string& name, int64_t n, int64_t k, ops::DType compute,
                     const Cut& cut = {}) const {
    return fetch({.form = Form::matrix,
                  .name = name,
                  .shape = {n, k},
                  .compute = compute,
                  .cut = cut})
        .packed;
  }
  ops::Weight paired(const std::string& gate, const std::string& up, int64_t n, int64_t k,
                     ops::DType compute, const Cut& cut = {}) const {
    return fetch({.form = Form::paired,
                  .name = gate,
                  .second = up,
                  .shape = {n, k},
                  .compute = compute,
                  .cut = cut})
        .packed;
  }
  ops::ConvWeight conv(const std::string& weight, const std::string& bias,
                       const tensor::Shape& shape, ops::DType compute) const {
    return filter(weight, bias, shape, compute).filter;
  }
  ops::FrameFilters frames(const std::string& weight, const std::string& bias,
                           const tensor::Shape& shape, ops::DType compute) const {
    return filter(weight, bias, shape, compute).frames;
  }

 private:
  FetchedWeight filter(const std::string& weight, const std::string& bias,
                       const tensor::Shape& shape, ops::DType compute) const {
    return fetch(
        {.form = Form::conv, .name = weight, .second = bias, .shape = shape, .compute = compute});
  }
};

}  // namespace tessera::nn

#include "nn/merged_weights.h"

#include "base/fail.h"

namespace tessera::nn {

using tensor::Device;
using tensor::Tensor;

bool MergedWeights::merges(const std::string& name) const {
  const auto found = changes_->find(name);
  return found != changes_->end() && (all_ || !are_pairs(found->second));
}

// A tensor, changed or not, f32 on the host or on meta; filters are matrices of their elements.
Tensor MergedWeights::merged(const std::string& name, const tensor::Shape& shape) const {
  const Tensor stored = base_->get(name, shape);
  require(tensor::is_float(stored.dtype()), ErrorCode::usage,
          "an adapter changes '{}', which is stored in {}, and has to be merged into floats; use "
          "the model as it was before it was quantised, or leave the adapter out",
          name, tensor::name_of(stored.dtype()));
  const int64_t n = shape[0];
  const Tensor matrix = (stored.is_meta() ? stored : stored.to(Device::cpu))
                            .contiguous()
                            .reshape({n, stored.elements() / n});
  const auto found = changes_->find(name);
  return changed(matrix, found == changes_->end() ? std::vector<WeightChange>() : found->second)
      .reshape(shape);
}

Tensor MergedWeights::get(const std::string& name, const tensor::Shape& shape) const {
  if (!changes_->contains(name)) return base_->get(name, shape);
  const Tensor result = merged(name, shape);
  return result.is_meta() ? result : result.to(device_);
}

ops::Weight MergedWeights::matrix(const std::string& name, int64_t n, int64_t k, ops::DType compute,
                                  const Cut& cut) const {
  if (!merges(name)) return base_->matrix(name, n, k, compute, cut);
  const Tensor part = taken(merged(name, {n, k}), cut);
  return ops::pack_weight(part, compute, part.is_meta() ? Device::meta : device_);
}

ops::Weight MergedWeights::paired(const std::string& gate, const std::string& up, int64_t n,
                                  int64_t k, ops::DType compute, const Cut& cut) const {
  if (!merges(gate) && !merges(up)) return base_->paired(gate, up, n, k, compute, cut);
  const Tensor first = taken(merged(gate, {n, k}), cut), second = taken(merged(up, {n, k}), cut);
  return ops::pack_paired_weight(first, second, compute, first.is_meta() ? Device::meta : device_);
}

}  // namespace tessera::nn

#include "nn/merged_weights.h"

#include "base/fail.h"

namespace tessera::nn {

using tensor::Device;
using tensor::Tensor;

bool MergedWeights::merges(const std::string& name) const {
  const auto it = changes_->find(name);
  return it != changes_->end() && (all_ || !are_pairs(it->second));
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
  const auto it = changes_->find(name);
  return changed(matrix, it == changes_->end() ? std::vector<WeightChange>() : it->second)
      .reshape(shape);
}

FetchedWeight MergedWeights::fetch(const WeightRequest& r) const {
  const auto part = [&](const std::string& name) { return taken(merged(name, r.shape), r.cut); };
  if (r.form == Form::stored && changes_->contains(r.name)) {
    const Tensor whole = merged(r.name, r.shape);
    return {.tensor = whole.is_meta() ? whole : whole.to(device_)};
  }
  if (!r.packs() || !(merges(r.name) || merges(r.second))) return base_->fetch(r);
  const Tensor first = part(r.name);
  const Device device = first.is_meta() ? Device::meta : device_;
  return {.packed = r.form == Form::matrix
                        ? ops::pack_weight(first, r.compute, device)
                        : ops::pack_paired_weight(first, part(r.second), r.compute, device)};
}

}  // namespace tessera::nn

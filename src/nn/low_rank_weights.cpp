#include "nn/low_rank_weights.h"

#include <span>
#include <utility>

#include "nn/input_records.h"
#include "nn/weight_key.h"
#include "ops/elementwise.h"
#include "tensor/uncounted.h"

namespace tessera::nn {

using ops::DType;
using tensor::Device;
using tensor::Tensor;

namespace {

// [a 0] with so many columns, or [0 a] with `right`.
Tensor widened(const Tensor& a, int64_t columns, bool right) {
  if (a.size(1) == columns) return a;
  const Tensor zeros = Tensor::zeros({a.size(0), columns - a.size(1)}, DType::f32);
  return right ? ops::concat_columns({zeros, a}) : ops::concat_columns({a, zeros});
}

// Columns of `down` over the scale of a product's inputs, because the pair takes scaled inputs.
Tensor unscaled(const Tensor& down, const WeightRequest& request, const Cut& cut,
                const Weights& base) {
  if (!base.smoothed(request.name)) return down;
  std::vector<float> inverse =
      base.vector(input_scale_of(request.name), request.shape[1], {0, cut.ranges}).to_floats();
  for (float& factor : inverse) factor = 1 / factor;
  return ops::multiply_row(ops::cast(down, DType::f32),
                           Tensor::from(std::span<const float>(inverse), {down.size(1)}));
}

}  // namespace

const std::vector<WeightChange>* LowRanks::pairs_of(const std::string& name) const {
  const auto it = changes_->find(name);
  return it != changes_->end() && are_pairs(it->second) ? &it->second : nullptr;
}

std::shared_ptr<const ops::LowRank> LowRanks::packed(const WeightRequest& request, Device device,
                                                     const Weights& base) const {
  const tensor::Uncounted aside(tensor::Counts::work);
  const Cut& cut = request.cut;
  const auto *const changes = pairs_of(request.name), *const other_changes =
                                                          pairs_of(request.second);
  WeightChange pair, other;
  if (changes) pair = joined_pairs(*changes);
  if (other_changes) other = joined_pairs(*other_changes);
  const bool by_inputs = !cut.whole() && cut.axis == 1;
  const auto place = [&](const Tensor& x, const Cut& of) {
    const Tensor part = taken(x, of).contiguous();
    return device == Device::meta ? part.to(Device::meta) : part;
  };
  const Cut none;
  const Cut& inputs = by_inputs ? cut : none;
  Tensor down = place(!changes         ? other.down
                      : !other_changes ? pair.down
                                       : ops::concat_rows({pair.down, other.down}),
                      inputs);
  if (device != Device::meta) down = unscaled(down, request, inputs, base);
  const int64_t rank = down.size(0);
  const auto up_of = [&](const WeightChange& change, const WeightChange& beside, bool right) {
    const Tensor up = change.up.defined() ? widened(change.up, rank, right)
                                          : Tensor::zeros({beside.up.size(0), rank}, DType::f32);
    return place(up, by_inputs ? none : cut);
  };
  const ops::Weight narrow = ops::pack_weight(down, request.compute, device);
  const ops::Weight wide =
      request.second.empty()
          ? ops::pack_weight(place(pair.up, by_inputs ? none : cut), DType::f32, device)
          : ops::pack_paired_weight(up_of(pair, other, false), up_of(other, pair, true), DType::f32,
                                    device);
  return std::make_shared<const ops::LowRank>(ops::LowRank{*narrow, *wide});
}

ops::Weight LowRanks::beside(const ops::Weight& weight, const WeightRequest& request,
                             const Weights& base) const {
  if (!pairs_of(request.name) && !pairs_of(request.second)) return weight;
  const Device device = weight->data.is_meta() ? Device::meta : device_;
  const std::string key = (device == Device::meta ? "meta " : "here ") + weight_key(request);
  struct AdaptedWeight {
    ops::Weight base;
    ops::PackedWeight adapted;
  };
  const auto weights = std::make_shared<AdaptedWeight>(AdaptedWeight{weight, *weight});
  {
    const std::lock_guard lock(mutex_);
    auto& low = packed_[key];
    if (!low) low = packed(request, device, base);
    weights->adapted.low = low;
  }
  return {weights, &weights->adapted};
}

FetchedWeight LowRankWeights::fetch(const WeightRequest& request) const {
  FetchedWeight weight = base_->fetch(request);
  if (!request.packs()) return weight;
  weight.packed = pairs_->beside(weight.packed, request, *base_);
  if (weight.at_use)
    weight.at_use = [pairs = pairs_, base = base_, request, fetch = std::move(weight.at_use)] {
      return FetchedWeight{.packed = pairs->beside(fetch().packed, request, *base)};
    };
  return weight;
}

}  // namespace tessera::nn

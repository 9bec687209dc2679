#include "nn/moe/recorded_routing.h"

#include <algorithm>

#include "base/fail.h"
#include "base/printable.h"
#include "tensor/uncounted.h"

namespace tessera::nn {
namespace {

std::string name_of(int site) { return fmt::format("routing.{}", site); }

bool inside(const Range& range, int64_t size) { return range.begin >= 0 && range.end <= size; }

}  // namespace

RecordedRouting::RecordedRouting(const std::map<std::string, Tensor>& tensors) {
  for (const auto& [name, layer] : tensors) {
    require(layer.rank() == 4 && layer.dtype() == DType::i32 && layer.elements() > 0,
            ErrorCode::usage,
            "the routing '{}' is {} of {}; expected i32 [steps, sequences, tokens, slots]",
            base::printable(name), layer.shape().str(), tensor::name_of(layer.dtype()));
    if (layers_.empty()) *this = {layer.size(0), layer.size(1), layer.size(2)};
    require(layer.size(0) == steps_ && layer.size(1) == sequences_ && layer.size(2) == tokens_,
            ErrorCode::usage,
            "the routing '{}' is {}; another layer has {} steps of {} sequences of {} tokens",
            base::printable(name), layer.shape().str(), steps_, sequences_, tokens_);
    layers_[name] = layer.contiguous();
  }
}

void RecordedRouting::note(const MoeCall& call, const std::vector<int>& numbers,
                           const Tensor& ids) {
  const int64_t slots = ids.size(1);
  Tensor& layer = layers_[name_of(call.site)];
  if (!layer.defined()) {
    const tensor::Uncounted aside;  // whichever rank comes first
    layer = Tensor::empty({steps_, sequences_, tokens_, slots}, DType::i32);
    std::fill_n(layer.data<int32_t>(), layer.elements(), -1);
  }
  if (ids.is_meta()) return;
  const Tensor here = ids.to(tensor::Device::cpu).contiguous();
  const int32_t* from = here.data<int32_t>();
  for (const Segment& s : call.view.body) {
    const int64_t sequence = numbers.at(static_cast<size_t>(s.sequence));
    require(layer.size(3) == slots && call.step.index < steps_ && sequence < sequences_ &&
                inside(s.ids, tokens_),
            ErrorCode::usage, "layer {} routes other tokens than the request has", call.site);
    const int64_t first = ((call.step.index * sequences_ + sequence) * tokens_ + s.ids.begin);
    std::copy_n(from, s.ids.size() * slots, layer.data<int32_t>() + first * slots);
    from += s.ids.size() * slots;
  }
}

Tensor RecordedRouting::ids(const MoeCall& call, const std::vector<int>& numbers, int64_t count,
                            int64_t slots) const {
  const auto found = layers_.find(name_of(call.site));
  require(found != layers_.end() && found->second.size(3) == slots && call.step.index < steps_,
          ErrorCode::usage, "the routing has no {} experts of a token for layer {} in step {}",
          slots, call.site, call.step.index);
  const Tensor ids = Tensor::empty({count, slots}, DType::i32);
  int32_t* to = ids.data<int32_t>();
  int64_t skipped = call.first, rest = count;
  for (const Segment& s : call.view.body) {
    const int64_t begin = s.ids.begin + std::min(skipped, s.ids.size());
    const int64_t end = std::min(s.ids.end, begin + rest);
    const int64_t sequence = numbers.at(static_cast<size_t>(s.sequence));
    require(sequence < sequences_ && inside({begin, end}, tokens_), ErrorCode::usage,
            "the routing has {} sequences of {} tokens; the run has more", sequences_, tokens_);
    const int64_t first = (call.step.index * sequences_ + sequence) * tokens_ + begin;
    to = std::copy_n(found->second.data<int32_t>() + first * slots, (end - begin) * slots, to);
    skipped -= std::min(skipped, s.ids.size());
    rest -= end - begin;
  }
  require(rest == 0, ErrorCode::usage, "layer {} has {} tokens more than its view", call.site,
          rest);
  return ids;
}

bool RecordedRouting::complete() const {
  return std::all_of(layers_.begin(), layers_.end(), [](const auto& layer) {
    const int32_t* const ids = layer.second.template data<int32_t>();
    return std::all_of(ids, ids + layer.second.elements(), [](int32_t id) { return id >= 0; });
  });
}

int64_t RecordedRouting::experts() const {
  int32_t most = -1;
  for (const auto& [name, layer] : layers_) {
    const int32_t* const ids = layer.data<int32_t>();
    most = std::max(most, *std::max_element(ids, ids + layer.elements()));
  }
  return int64_t{most} + 1;
}

ops::Routing RecordedPolicy::choose(const MoeCall& call, const Tensor&, const Tensor& logits,
                                    const ops::RoutingOptions& router) const {
  const tensor::Shape size{logits.size(0), router.top_k};
  (void)ops::route(logits, router);
  return {record_->ids(call, numbers_, size[0], size[1]), Tensor::zeros(size, DType::f32)};
}

}  // namespace tessera::nn

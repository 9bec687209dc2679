#include "runtime/sharded_blocks.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/fail.h"
#include "base/stop.h"
#include "nn/weight_key.h"
#include "nn/weights_over.h"
#include "runtime/counted_bytes.h"
#include "tensor/scope.h"
#include "tensor/uncounted.h"

namespace tessera::runtime {
namespace {

using nn::Range;
using nn::Weights;
using ops::DType;
using tensor::Tensor;

constexpr int64_t kLine = 64;  // bytes: alignment of tensors, and the unit of cuts

int64_t rounded(int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

struct BlockLayout::Part {
  nn::WeightRequest request;
  nn::FetchedWeight form;  // on meta
  int64_t at = 0;
};

namespace {

// The tensors of a weight, stored one after the other.
std::vector<Tensor> tensors_of(const nn::FetchedWeight& weight) {
  if (!weight.packed) return {weight.tensor};
  if (!weight.packed->scales.defined()) return {weight.packed->data};
  return {weight.packed->data, weight.packed->scales};
}

int64_t bytes_of(const std::vector<Tensor>& tensors) {
  int64_t bytes = 0;
  for (const Tensor& x : tensors) bytes += x.bytes();
  return bytes;
}

int64_t lines_of(const std::vector<Tensor>& tensors) {
  int64_t bytes = 0;
  for (const Tensor& x : tensors) bytes += rounded(x.bytes());
  return bytes;
}

// The same tensor as a view of some bytes of `buffer`; owns all bytes.
Tensor view_of(const Tensor& buffer, int64_t at, const Tensor& form) {
  const int64_t bytes = form.bytes();
  const auto part = [&] {
    if (!buffer.is_meta())
      return tensor::Storage::view(buffer.data<std::byte>() + at, bytes, nullptr);
    const tensor::Uncounted aside;
    return tensor::Storage::allocate(bytes, tensor::Device::meta, tensor::MemoryClass::weights);
  }();
  const std::shared_ptr<tensor::Storage> keeps(part.get(), [part, buffer](tensor::Storage*) {});
  return Tensor::over(keeps, 0, form.shape(), form.dtype());
}

}  // namespace

BlockLayout::BlockLayout(const models::PipelineSpec& spec, std::shared_ptr<const Weights> meta,
                         DType dtype, const nn::Portion& block)
    : BlockLayout(std::move(meta),
                  [&](const Weights& noted) { (void)spec.make(noted, block, dtype); }) {}

BlockLayout::BlockLayout(std::shared_ptr<const Weights> meta,
                         const std::function<void(const Weights&)>& ask)
    : meta_(std::move(meta)), parts_(std::make_unique<Parts>()) {
  const tensor::Uncounted aside;
  ask(nn::AnsweredWeights(meta_, [&](const nn::WeightRequest& request) {
    require(request.form != nn::WeightRequest::Form::conv, ErrorCode::plan,
            "shard= gathers no filters, and a block has '{}'; leave it out", request.name);
    const std::string key = nn::weight_key(request);
    if (const auto it = parts_->find(key); it != parts_->end()) return it->second.form;
    Part part{request, meta_->fetch(request), bytes_};
    bytes_ += lines_of(tensors_of(part.form));
    return parts_->emplace(key, std::move(part)).first->second.form;
  }));
}
BlockLayout::~BlockLayout() = default;
BlockLayout::BlockLayout(BlockLayout&&) noexcept = default;

Range BlockLayout::run_of(const nn::Shard& shard) const {
  const Range lines = nn::split({0, bytes_ / kLine}, shard.count, shard.index);
  return {lines.begin * kLine, lines.end * kLine};
}

Tensor BlockLayout::packed(const Weights& weights, Range run, tensor::Device device) const {
  const Tensor own_bytes =
      Tensor::zeros({run.size()}, DType::u8, device, tensor::MemoryClass::weights);
  tensor::Scope aside = tensor::current_scope();
  const auto memory = std::exchange(aside.memory, nullptr);
  for (const auto& [key, part] : *parts_) {
    const auto expected = tensors_of(part.form);
    if (part.at + lines_of(expected) <= run.begin || part.at >= run.end) continue;
    base::check_stop();
    const nn::FetchedWeight weight = [&] {
      const tensor::BindScope bound(aside);
      return weights.fetch(part.request);
    }();
    const auto tensors = tensors_of(weight);
    // Counts the rank's run while packing, even if others of the process share the bytes.
    const CountedBytes counted(memory, tensor::MemoryClass::weights, bytes_of(tensors));
    int64_t at = part.at;
    for (size_t i = 0; i < expected.size(); ++i) {
      const Tensor& x = tensors.at(i);
      require(tensors.size() == expected.size() && x.shape() == expected[i].shape() &&
                  x.dtype() == expected[i].dtype(),
              ErrorCode::model, "'{}' is {} {} in memory; {} {} was predicted", key,
              name_of(x.dtype()), x.shape().str(), name_of(expected[i].dtype()),
              expected[i].shape().str());
      const Range overlap{std::max(at, run.begin), std::min(at + x.bytes(), run.end)};
      if (overlap.size() > 0 && !x.is_meta())
        std::memcpy(own_bytes.data<std::byte>() + (overlap.begin - run.begin),
                    x.contiguous().data<std::byte>() + (overlap.begin - at),
                    static_cast<size_t>(overlap.size()));
      at += rounded(x.bytes());
    }
  }
  return own_bytes;
}

std::shared_ptr<const Weights> BlockLayout::over(const Tensor& buffer) const {
  return std::make_shared<const nn::AnsweredWeights>(
      meta_, [parts = parts_.get(), buffer](const nn::WeightRequest& request) {
        const std::string key = nn::weight_key(request);
        const auto it = parts->find(key);
        require(it != parts->end(), ErrorCode::model,
                "a block asks for '{}', which was not predicted", key);
        const auto& form = it->second.form;
        const int64_t at = it->second.at;
        if (!form.packed) return nn::FetchedWeight{.tensor = view_of(buffer, at, form.tensor)};
        const auto packed_weight = std::make_shared<ops::PackedWeight>(*form.packed);
        packed_weight->data = view_of(buffer, at, packed_weight->data);
        if (packed_weight->scales.defined())
          packed_weight->scales =
              view_of(buffer, at + rounded(packed_weight->data.bytes()), packed_weight->scales);
        return nn::FetchedWeight{.packed = packed_weight};
      });
}

ShardedSource::ShardedSource(const models::PipelineSpec& spec,
                             const std::shared_ptr<const Weights>& meta, const Weights& weights,
                             DType dtype, const nn::Portion& portion, const nn::Shard& shard,
                             tensor::Device device, std::shared_ptr<const nn::LowRanks> pairs)
    : pairs_(std::move(pairs)) {
  blocks_.blocks = portion.blocks;
  for (int64_t b = portion.blocks.begin; b < portion.blocks.end; ++b) {
    const BlockLayout& layout = layouts_.emplace_back(spec, meta, dtype, one_block(portion, b));
    blocks_.mine.push_back(layout.packed(weights, layout.run_of(shard), device));
    blocks_.whole.push_back(layout.bytes());
  }
}

std::shared_ptr<const Weights> ShardedSource::weights(int block, const nn::Seams& seams) const {
  require(seams.gather != nullptr, ErrorCode::usage,
          "block {} is spread over ranks, and nothing gathers it", block);
  const auto at = static_cast<size_t>(block - blocks_.blocks.begin);
  return nn::with_pairs(layouts_.at(at).over(seams.gather->bytes(block, blocks_)), pairs_);
}

}  // namespace tessera::runtime

#include "runtime/sharded_blocks.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/fail.h"
#include "base/stop.h"
#include "nn/weight_key.h"
#include "runtime/counted_bytes.h"
#include "tensor/scope.h"
#include "tensor/uncounted.h"

namespace tessera::runtime {
namespace {

using nn::Cut;
using nn::Range;
using nn::Weights;
using ops::DType;
using tensor::Shape;
using tensor::Tensor;

constexpr int64_t kLine = 64;  // bytes: alignment of tensors, and the unit of cuts

int64_t rounded(int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

struct BlockLayout::Part {
  std::function<ops::PackedWeight(const Weights&)> take;  // for a plain tensor: as stored
  ops::PackedWeight form;                                 // on meta
  int64_t at = 0;

  static int64_t bytes_of(const std::vector<const Tensor*>& tensors) {
    int64_t bytes = 0;
    for (const Tensor* x : tensors) bytes += x->bytes();
    return bytes;
  }
  // The tensors stored one after the other.
  static std::vector<const Tensor*> tensors(const ops::PackedWeight& of) {
    if (of.scales.defined()) return {&of.data, &of.scales};
    return {&of.data};
  }
};

namespace {

using Part = BlockLayout::Part;
using Parts = BlockLayout::Parts;

/// Records the requests of a block as parts while the layout is found; returns the parts
/// afterwards.
class PartWeightsOf : public Weights {
 public:
  bool has(const std::string& name) const override { return meta_.has(name); }
  Tensor get(const std::string& name, const Shape& shape) const override {
    return plain(nn::weight_key("stored", name, DType::f32),
                 [=](const Weights& from) { return from.get(name, shape); });
  }
  Tensor vector(const std::string& name, int64_t n, const Cut& cut = {}) const override {
    return plain(nn::weight_key("vector", name, DType::f32, cut),
                 [=](const Weights& from) { return from.vector(name, n, cut); });
  }
  ops::Weight matrix(const std::string& name, int64_t n, int64_t k, DType compute,
                     const Cut& cut = {}) const override {
    return packed(nn::weight_key("matrix", name, compute, cut),
                  [=](const Weights& from) { return *from.matrix(name, n, k, compute, cut); });
  }
  ops::Weight paired(const std::string& gate, const std::string& up, int64_t n, int64_t k,
                     DType compute, const Cut& cut = {}) const override {
    return packed(nn::weight_key("paired", gate + " " + up, compute, cut),
                  [=](const Weights& from) { return *from.paired(gate, up, n, k, compute, cut); });
  }
  ops::ConvWeight conv(const std::string& weight, const std::string&, const Shape&,
                       DType) const override {
    fail(ErrorCode::plan, "shard= gathers no filters, and a block has '{}'; leave it out", weight);
  }

 protected:
  explicit PartWeightsOf(const Weights& meta) : meta_(meta) {}
  using Take = std::function<ops::PackedWeight(const Weights&)>;
  virtual ops::PackedWeight part(const std::string& key, const Take& take) const = 0;
  const Weights& meta_;

 private:
  template <class F>
  Tensor plain(const std::string& key, const F& take) const {
    return part(key,
                [take](const Weights& from) {
                  ops::PackedWeight one;
                  one.data = take(from);
                  return one;
                })
        .data;
  }
  ops::Weight packed(const std::string& key, const Take& take) const {
    return std::make_shared<const ops::PackedWeight>(part(key, take));
  }
};

class Noted final : public PartWeightsOf {
 public:
  Noted(const Weights& meta, Parts& parts) : PartWeightsOf(meta), parts_(parts) {}
  int64_t bytes() const { return bytes_; }

 private:
  ops::PackedWeight part(const std::string& key, const Take& take) const override {
    const auto found = parts_.find(key);
    if (found != parts_.end()) return found->second.form;
    Part noted{take, take(meta_), bytes_};
    for (const Tensor* x : Part::tensors(noted.form)) bytes_ += rounded(x->bytes());
    return parts_.emplace(key, std::move(noted)).first->second.form;
  }
  Parts& parts_;
  mutable int64_t bytes_ = 0;
};

class Gathered final : public PartWeightsOf {
 public:
  Gathered(const Weights& meta, const Parts& parts, Tensor all)
      : PartWeightsOf(meta), parts_(parts), all_(std::move(all)) {}

 private:
  ops::PackedWeight part(const std::string& key, const Take&) const override {
    const auto found = parts_.find(key);
    require(found != parts_.end(), ErrorCode::model,
            "a block asks for '{}', which was not predicted", key);
    ops::PackedWeight here = found->second.form;
    int64_t at = found->second.at;
    for (Tensor* x : {&here.data, &here.scales}) {
      if (!x->defined()) continue;
      const int64_t bytes = x->bytes();
      *x = bytes_as(at, x->shape(), x->dtype());
      at += rounded(bytes);
    }
    return here;
  }
  // A view of some bytes that owns all bytes.
  Tensor bytes_as(int64_t at, const Shape& shape, DType dtype) const {
    const int64_t bytes = shape.elements() * size_of(dtype);
    const auto part = [&] {
      if (!all_.is_meta())
        return tensor::Storage::view(all_.data<std::byte>() + at, bytes, nullptr);
      const tensor::Uncounted aside;
      return tensor::Storage::allocate(bytes, tensor::Device::meta, tensor::MemoryClass::weights);
    }();
    const std::shared_ptr<tensor::Storage> keeps(part.get(),
                                                 [part, all = all_](tensor::Storage*) {});
    return Tensor::over(keeps, 0, shape, dtype);
  }
  const Parts& parts_;
  Tensor all_;
};

}  // namespace

BlockLayout::BlockLayout(const models::PipelineSpec& spec, std::shared_ptr<const Weights> meta,
                         DType dtype, const nn::Portion& block)
    : BlockLayout(std::move(meta),
                  [&](const Weights& noted) { (void)spec.make(noted, block, dtype); }) {}

BlockLayout::BlockLayout(std::shared_ptr<const Weights> meta,
                         const std::function<void(const Weights&)>& ask)
    : meta_(std::move(meta)), parts_(std::make_unique<Parts>()) {
  const tensor::Uncounted aside;
  const Noted noted(*meta_, *parts_);
  ask(noted);
  bytes_ = noted.bytes();
}
BlockLayout::~BlockLayout() = default;
BlockLayout::BlockLayout(BlockLayout&&) noexcept = default;

Range BlockLayout::run_of(const nn::Shard& shard) const {
  const Range lines = nn::split({0, bytes_ / kLine}, shard.count, shard.index);
  return {lines.begin * kLine, lines.end * kLine};
}

Tensor BlockLayout::packed(const Weights& weights, Range run, tensor::Device device) const {
  const Tensor mine = Tensor::zeros({run.size()}, DType::u8, device, tensor::MemoryClass::weights);
  tensor::Scope aside = tensor::current_scope();
  const auto memory = std::exchange(aside.memory, nullptr);
  for (const auto& [key, part] : *parts_) {
    int64_t end = part.at;
    for (const Tensor* x : Part::tensors(part.form)) end += rounded(x->bytes());
    if (end <= run.begin || part.at >= run.end) continue;
    base::check_stop();
    const ops::PackedWeight made = [&] {
      const tensor::BindScope bound(aside);
      return part.take(weights);
    }();
    const auto found = Part::tensors(made), expected = Part::tensors(part.form);
    // Counts the rank's run while packing, even if others of the process share the bytes.
    const CountedBytes counted(memory, tensor::MemoryClass::weights, Part::bytes_of(found));
    int64_t at = part.at;
    for (size_t i = 0; i < expected.size(); ++i) {
      const Tensor& x = *found.at(i);
      require(found.size() == expected.size() && x.shape() == expected[i]->shape() &&
                  x.dtype() == expected[i]->dtype(),
              ErrorCode::model, "'{}' is {} {} in memory; {} {} was predicted", key,
              name_of(x.dtype()), x.shape().str(), name_of(expected[i]->dtype()),
              expected[i]->shape().str());
      const Range both{std::max(at, run.begin), std::min(at + x.bytes(), run.end)};
      if (both.size() > 0 && !x.is_meta())
        std::memcpy(mine.data<std::byte>() + (both.begin - run.begin),
                    x.contiguous().data<std::byte>() + (both.begin - at),
                    static_cast<size_t>(both.size()));
      at += rounded(x.bytes());
    }
  }
  return mine;
}

std::shared_ptr<const Weights> BlockLayout::over(const Tensor& all) const {
  return std::make_shared<const Gathered>(*meta_, *parts_, all);
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

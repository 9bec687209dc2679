#include "runtime/sharded_denoiser.h"

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "load/meta_weights.h"
#include "runtime/counted_bytes.h"
#include "tensor/scope.h"
#include "tensor/uncounted.h"

namespace tessera::runtime {

using nn::Cut;
using nn::DType;
using nn::Weights;
using tensor::Shape;
using tensor::Tensor;

/// A rank's weights outside of the blocks.
struct ShardedRest {
  /// A matrix or table, stored as a run on each rank.
  struct Piece {
    BlockLayout layout;
    Tensor mine;
    std::vector<nn::Range> runs;          ///< runs of all ranks
    std::shared_ptr<const Weights> form;  ///< the weight on meta
  };
  std::shared_ptr<const Weights> meta;
  std::map<std::string, Piece> pieces;    ///< by name
  std::map<std::string, Tensor> stored;   ///< by name, all of each
  std::map<std::string, Tensor> vectors;  ///< by name, all of each
};

namespace {

[[noreturn]] void not_sharded(const std::string& name) {
  fail(ErrorCode::plan, "shard= spreads no '{}', which stands outside of blocks; leave it out",
       name);
}

/// Matrices and tables are on meta, and are gathered at use.
class RestWeights : public Weights {
 public:
  RestWeights(std::shared_ptr<const ShardedRest> rest, nn::Gather& gather)
      : rest_(std::move(rest)), gather_(gather) {}
  bool has(const std::string& name) const override { return rest_->meta->has(name); }
  Tensor get(const std::string& name, const Shape&) const override {
    return rest_->stored.at(name);
  }
  Tensor vector(const std::string& name, int64_t, const Cut&) const override {
    return rest_->vectors.at(name);
  }
  ops::Weight matrix(const std::string& name, int64_t n, int64_t k, DType compute,
                     const Cut& cut) const override {
    return rest_->pieces.at(name).form->matrix(name, n, k, compute, cut);
  }
  Tensor table(const std::string& name, const Shape& shape) const override {
    return rest_->pieces.at(name).form->get(name, shape);
  }
  ops::Weight paired(const std::string& gate, const std::string&, int64_t, int64_t, DType,
                     const Cut&) const override {
    not_sharded(gate);
  }
  ops::ConvWeight conv(const std::string& weight, const std::string&, const Shape&,
                       DType) const override {
    not_sharded(weight);
  }
  std::shared_ptr<const Weights> at_use() const override;

 protected:
  // Gathers a whole piece; the result owns the bytes.
  std::shared_ptr<const Weights> brought(const std::string& name) const {
    const ShardedRest::Piece& piece = rest_->pieces.at(name);
    return piece.layout.over(gather_.whole(piece.mine, piece.runs));
  }

 private:
  const std::shared_ptr<const ShardedRest> rest_;
  nn::Gather& gather_;
};

/// Gathers matrices and tables immediately.
class Brought final : public RestWeights {
 public:
  using RestWeights::RestWeights;
  ops::Weight matrix(const std::string& name, int64_t n, int64_t k, DType compute,
                     const Cut& cut) const override {
    return brought(name)->matrix(name, n, k, compute, cut);
  }
  Tensor table(const std::string& name, const Shape& shape) const override {
    return brought(name)->get(name, shape);
  }
};

std::shared_ptr<const Weights> RestWeights::at_use() const {
  return std::make_shared<const Brought>(rest_, gather_);
}

/// Stores the weights that a network requests: the rank's run of matrices and tables, all other
/// weights whole.
class Keeping final : public Weights {
 public:
  Keeping(ShardedRest& rest, const Weights& from, const nn::Shard& shard, tensor::Device device)
      : rest_(rest), from_(from), shard_(shard), device_(device) {}
  bool has(const std::string& name) const override { return rest_.meta->has(name); }
  Tensor get(const std::string& name, const Shape& shape) const override {
    return rest_.stored.try_emplace(name, from_.get(name, shape)).first->second;
  }
  Tensor vector(const std::string& name, int64_t n, const Cut& cut) const override {
    return rest_.vectors.try_emplace(name, from_.vector(name, n, cut)).first->second;
  }
  ops::Weight matrix(const std::string& name, int64_t n, int64_t k, DType compute,
                     const Cut& cut) const override {
    return keep(name, [&](const Weights& noted) { (void)noted.matrix(name, n, k, compute, cut); })
        .matrix(name, n, k, compute, cut);
  }
  Tensor table(const std::string& name, const Shape& shape) const override {
    return keep(name, [&](const Weights& noted) { (void)noted.get(name, shape); }).get(name, shape);
  }
  ops::Weight paired(const std::string& gate, const std::string&, int64_t, int64_t, DType,
                     const Cut&) const override {
    not_sharded(gate);
  }
  ops::ConvWeight conv(const std::string& weight, const std::string&, const Shape&,
                       DType) const override {
    not_sharded(weight);
  }

 private:
  const Weights& keep(const std::string& name,
                      const std::function<void(const Weights&)>& ask) const {
    BlockLayout layout(rest_.meta, ask);
    ShardedRest::Piece piece{std::move(layout), {}, {}, {}};
    for (int i = 0; i < shard_.count; ++i)
      piece.runs.push_back(piece.layout.run_of({i, shard_.count}));
    piece.mine = piece.layout.packed(from_, piece.layout.run_of(shard_), device_);
    const tensor::Uncounted aside;
    piece.form =
        piece.layout.over(Tensor::empty({piece.layout.bytes()}, DType::u8, tensor::Device::meta));
    return *rest_.pieces.try_emplace(name, std::move(piece)).first->second.form;
  }
  ShardedRest& rest_;
  const Weights& from_;
  const nn::Shard shard_;
  const tensor::Device device_;
};

std::shared_ptr<const ShardedRest> kept_rest(const models::PipelineSpec& spec,
                                             const std::shared_ptr<const Weights>& meta,
                                             const Weights& weights, DType dtype,
                                             const nn::Portion& portion, const nn::Shard& shard,
                                             tensor::Device device) {
  const auto rest = std::make_shared<ShardedRest>();
  rest->meta = meta;
  (void)spec.make(Keeping(*rest, weights, shard, device), shell_of(portion), dtype);
  return rest;
}

// A network on meta for descriptions; computes nothing.
std::unique_ptr<nn::Denoiser> form_of(const models::PipelineSpec& spec, DType dtype,
                                      const nn::Portion& portion) {
  const tensor::Uncounted aside;
  return spec.make(load::MetaWeights(), shell_of(portion), dtype);
}

/// A network of a single request; the request's buffers count its temporary bytes.
class OfRequest final : public StreamedDenoiser {
 public:
  OfRequest(const models::PipelineSpec& spec, DType dtype, const nn::Portion& portion,
            std::shared_ptr<const ShardedSource> blocks, std::unique_ptr<nn::Denoiser> shell,
            const std::shared_ptr<tensor::MemoryTracker>& memory, int64_t bytes)
      : StreamedDenoiser(spec, dtype, portion, std::move(blocks), std::move(shell)),
        counted_(memory, tensor::MemoryClass::buffers, bytes) {}

 private:
  const CountedBytes counted_;
};

}  // namespace

ShardedDenoiser::ShardedDenoiser(const models::PipelineSpec& spec,
                                 const std::shared_ptr<const Weights>& meta, const Weights& weights,
                                 DType dtype, const nn::Portion& portion, const nn::Shard& shard,
                                 tensor::Device device,
                                 const std::shared_ptr<const nn::LowRanks>& pairs)
    : ShardedDenoiser(spec, dtype, portion,
                      std::make_shared<ShardedSource>(spec, meta, weights, dtype, portion, shard,
                                                      device, pairs),
                      kept_rest(spec, meta, weights, dtype, portion, shard, device), pairs) {}

ShardedDenoiser::ShardedDenoiser(const models::PipelineSpec& spec, DType dtype,
                                 const nn::Portion& portion,
                                 std::shared_ptr<const ShardedSource> blocks,
                                 std::shared_ptr<const ShardedRest> rest,
                                 std::shared_ptr<const nn::LowRanks> pairs)
    : StreamedDenoiser(spec, dtype, portion, blocks, form_of(spec, dtype, portion)),
      spec_(spec),
      dtype_(dtype),
      portion_(portion),
      blocks_(std::move(blocks)),
      rest_(std::move(rest)),
      pairs_(std::move(pairs)) {}

std::unique_ptr<nn::Denoiser> ShardedDenoiser::with(nn::Gather& gather) const {
  tensor::Scope scope = tensor::current_scope();
  const auto memory = std::exchange(scope.memory, std::make_shared<tensor::MemoryTracker>());
  auto shell = [&] {
    const tensor::BindScope bound(scope);
    const auto weights = nn::with_pairs(std::make_shared<RestWeights>(rest_, gather), pairs_);
    return spec_.make(*weights, shell_of(portion_), dtype_);
  }();
  return std::make_unique<OfRequest>(spec_, dtype_, portion_, blocks_, std::move(shell), memory,
                                     scope.memory->current());
}

nn::ContextPtr ShardedDenoiser::prepare(const nn::Conditioning&, const nn::TokenShape&) const {
  fail(ErrorCode::usage,
       "what stands before the blocks is spread over ranks, and nothing gathers it");
}

}  // namespace tessera::runtime

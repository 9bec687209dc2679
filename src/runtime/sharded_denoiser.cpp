#include "runtime/sharded_denoiser.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "load/meta_weights.h"
#include "nn/weight_key.h"
#include "nn/weights_over.h"
#include "runtime/counted_bytes.h"
#include "tensor/scope.h"
#include "tensor/uncounted.h"

namespace tessera::runtime {

using nn::DType;
using nn::Weights;
using tensor::Tensor;

/// A rank's weights outside of the blocks, by request.
struct ShardedRest {
  /// A matrix or table, stored as a run on each rank.
  struct Piece {
    BlockLayout layout;
    Tensor own_bytes;
    std::vector<nn::Range> runs{};          ///< runs of all ranks
    std::shared_ptr<const Weights> form{};  ///< the weight on meta
  };
  std::shared_ptr<const Weights> meta;
  std::map<std::string, Piece> pieces{};
  std::map<std::string, nn::FetchedWeight> whole{};  ///< vectors and small tables
};

namespace {

ShardedRest::Piece piece_of(const std::shared_ptr<const Weights>& meta, const Weights& from,
                            const nn::WeightRequest& request, const nn::Shard& shard,
                            tensor::Device device) {
  BlockLayout layout(meta, [&](const Weights& weights) { (void)weights.fetch(request); });
  Tensor own_bytes = layout.packed(from, layout.run_of(shard), device);
  ShardedRest::Piece piece{std::move(layout), std::move(own_bytes)};
  for (int i = 0; i < shard.count; ++i) piece.runs.push_back(piece.layout.run_of({i, shard.count}));
  const tensor::Uncounted aside;
  piece.form =
      piece.layout.over(Tensor::empty({piece.layout.bytes()}, DType::u8, tensor::Device::meta));
  return piece;
}

// Stores the weights that a network requests: the rank's run of matrices and tables, all other
// weights whole.
std::shared_ptr<const ShardedRest> kept_rest(const models::PipelineSpec& spec,
                                             const std::shared_ptr<const Weights>& meta,
                                             const Weights& weights, DType dtype,
                                             const nn::Portion& portion, const nn::Shard& shard,
                                             tensor::Device device) {
  const auto rest = std::make_shared<ShardedRest>(ShardedRest{meta});
  const auto keep = [&](const nn::WeightRequest& request) {
    using Form = Weights::Form;
    require(request.form != Form::paired && request.form != Form::conv, ErrorCode::plan,
            "shard= spreads no '{}', which stands outside of blocks; leave it out", request.name);
    const std::string key = nn::weight_key(request);
    if (request.form == Form::stored || request.form == Form::vector)
      return rest->whole.try_emplace(key, weights.fetch(request)).first->second;
    auto it = rest->pieces.find(key);
    if (it == rest->pieces.end())
      it = rest->pieces.emplace(key, piece_of(meta, weights, request, shard, device)).first;
    return it->second.form->fetch(request);
  };
  (void)spec.make(nn::AnsweredWeights(meta, keep), shell_of(portion), dtype);
  return rest;
}

// FSDP: matrices and tables are on meta, and are gathered at use.
nn::AnsweredWeights gathered(std::shared_ptr<const ShardedRest> rest, nn::Gather& gather) {
  const auto& meta = rest->meta;
  return {meta, [rest = std::move(rest), &gather](const nn::WeightRequest& request) {
            const std::string key = nn::weight_key(request);
            if (const auto whole = rest->whole.find(key); whole != rest->whole.end())
              return whole->second;
            const ShardedRest::Piece& piece = rest->pieces.at(key);
            nn::FetchedWeight weight = piece.form->fetch(request);
            weight.at_use = [rest, &piece, &gather, request] {
              const Tensor buffer = gather.whole(piece.own_bytes, piece.runs);
              return piece.layout.over(buffer)->fetch(request);
            };
            return weight;
          }};
}

// A network on meta for descriptions; computes nothing.
std::unique_ptr<nn::Denoiser> form_of(const models::PipelineSpec& spec, DType dtype,
                                      const nn::Portion& portion) {
  const tensor::Uncounted aside;
  return spec.make(load::MetaWeights(), shell_of(portion), dtype);
}

/// A network of a single request; the request's buffers count its temporary bytes.
class RequestNetwork final : public StreamedDenoiser {
 public:
  RequestNetwork(const models::PipelineSpec& spec, DType dtype, const nn::Portion& portion,
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
    const auto weights = nn::with_pairs(
        std::make_shared<const nn::AnsweredWeights>(gathered(rest_, gather)), pairs_);
    return spec_.make(*weights, shell_of(portion_), dtype_);
  }();
  return std::make_unique<RequestNetwork>(spec_, dtype_, portion_, blocks_, std::move(shell),
                                          memory, scope.memory->current());
}

nn::ContextPtr ShardedDenoiser::prepare(const nn::Conditioning&, const nn::TokenShape&) const {
  fail(ErrorCode::usage,
       "what stands before the blocks is spread over ranks, and nothing gathers it");
}

}  // namespace tessera::runtime

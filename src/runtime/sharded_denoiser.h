#pragma once

#include <memory>

#include "runtime/sharded_blocks.h"

namespace tessera::runtime {

struct ShardedRest;

/// A transformer on a rank of shard=. The rank stores a run of the bytes of every block, and of
/// every large matrix and table outside of blocks. Blocks are gathered one ahead; other weights are
/// gathered at use, one at a time. All are released after use (nn::Gather). Vectors, small tables
/// and patch layers are whole on each rank. A request binds the transformer to a Gather by with().
class ShardedDenoiser final : public StreamedDenoiser {
 public:
  /// The blocks of `portion` and the modules around them; this rank stores the bytes of `shard`.
  /// `meta` describes the weights; `weights` holds them, on the host or on meta. Every rank has all
  /// `pairs`; null: none.
  ShardedDenoiser(const models::PipelineSpec& spec, const std::shared_ptr<const nn::Weights>& meta,
                  const nn::Weights& weights, nn::DType dtype, const nn::Portion& portion,
                  const nn::Shard& shard, tensor::Device device,
                  const std::shared_ptr<const nn::LowRanks>& pairs = nullptr);
  /// Counts gathered weights as buffers.
  std::unique_ptr<nn::Denoiser> with(nn::Gather& gather) const override;
  /// Throws Error(usage), because no Gather is bound.
  nn::ContextPtr prepare(const nn::Conditioning& conditioning,
                         const nn::TokenShape& shape) const override;

 private:
  ShardedDenoiser(const models::PipelineSpec& spec, nn::DType dtype, const nn::Portion& portion,
                  std::shared_ptr<const ShardedSource> blocks,
                  std::shared_ptr<const ShardedRest> rest,
                  std::shared_ptr<const nn::LowRanks> pairs);

  const models::PipelineSpec& spec_;
  const nn::DType dtype_;
  const nn::Portion portion_;
  const std::shared_ptr<const ShardedSource> blocks_;
  const std::shared_ptr<const ShardedRest> rest_;
  const std::shared_ptr<const nn::LowRanks> pairs_;
};

}  // namespace tessera::runtime

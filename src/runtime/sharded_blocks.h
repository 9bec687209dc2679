#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nn/low_rank_weights.h"
#include "runtime/streamed.h"

namespace tessera::runtime {

/// The packed weights of a block as a single run of bytes: offsets of all weights, found on meta.
class BlockLayout {
 public:
  /// The layout of everything a block requests from `meta`, which holds no data
  /// (load/meta_weights.h).
  BlockLayout(const models::PipelineSpec& spec, std::shared_ptr<const nn::Weights> meta,
              nn::DType dtype, const nn::Portion& block);
  /// The layout of everything `ask` requests from its weights, on meta.
  BlockLayout(std::shared_ptr<const nn::Weights> meta,
              const std::function<void(const nn::Weights&)>& ask);
  ~BlockLayout();
  BlockLayout(BlockLayout&&) noexcept;
  int64_t bytes() const { return bytes_; }
  /// The bytes of `shard`, as even as whole cache lines allow.
  nn::Range run_of(const nn::Shard& shard) const;
  /// The bytes of a run, u8 on the host or on meta, packed from `weights` in order. Throws
  /// Error(model) for weights of unexpected size.
  nn::Tensor packed(const nn::Weights& weights, nn::Range run, tensor::Device device) const;
  /// Weights that point into `buffer` and own the bytes.
  std::shared_ptr<const nn::Weights> over(const nn::Tensor& buffer) const;

  struct Part;
  using Parts = std::map<std::string, Part>;

 private:
  std::shared_ptr<const nn::Weights> meta_;
  std::unique_ptr<Parts> parts_;  // by form, name and cut
  int64_t bytes_ = 0;
};

/// Blocks of a rank that stores a run of the bytes of each block, and gathers the rest
/// (nn::Gather).
class ShardedSource final : public BlockSource {
 public:
  /// The blocks of `portion`; this rank stores the bytes of `shard`. `meta` describes the weights;
  /// `weights` holds them, on the host or on meta. Every rank has all `pairs`; null: none.
  ShardedSource(const models::PipelineSpec& spec, const std::shared_ptr<const nn::Weights>& meta,
                const nn::Weights& weights, nn::DType dtype, const nn::Portion& portion,
                const nn::Shard& shard, tensor::Device device,
                std::shared_ptr<const nn::LowRanks> pairs = nullptr);
  std::shared_ptr<const nn::Weights> weights(int block, const nn::Seams& seams) const override;
  const nn::ShardedBlocks& blocks() const { return blocks_; }

 private:
  std::vector<BlockLayout> layouts_;
  nn::ShardedBlocks blocks_;
  std::shared_ptr<const nn::LowRanks> pairs_;
};

}  // namespace tessera::runtime

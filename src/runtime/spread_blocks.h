#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nn/low_rank_weights.h"
#include "runtime/streamed.h"

namespace tessera::runtime {

/// The packed weights of a block as one run of bytes: what is where, found on meta.
class BlockLayout {
 public:
  /// Of what the block alone asks of `meta`, which holds nothing (load/meta_weights.h).
  BlockLayout(const models::PipelineSpec& spec, std::shared_ptr<const nn::Weights> meta,
              nn::DType dtype, const nn::Portion& block);
  /// The same of what `ask` asks of the weights that it is given, on meta.
  BlockLayout(std::shared_ptr<const nn::Weights> meta,
              const std::function<void(const nn::Weights&)>& ask);
  ~BlockLayout();
  BlockLayout(BlockLayout&&) noexcept;
  int64_t bytes() const { return bytes_; }
  /// Of these bytes the ones that `shard` has, as even as whole cache lines go.
  nn::Range run_of(const nn::Shard& shard) const;
  /// Bytes of a run, u8 on the host or on meta, packed from `weights` one after the other. Throws
  /// Error(model) for weights of another size than foreseen.
  nn::Tensor packed(const nn::Weights& weights, nn::Range run, tensor::Device device) const;
  /// The weights that lie in all bytes, and keep them.
  std::shared_ptr<const nn::Weights> over(const nn::Tensor& all) const;

  struct Part;
  using Parts = std::map<std::string, Part>;

 private:
  std::shared_ptr<const nn::Weights> meta_;
  std::unique_ptr<Parts> parts_;  // by form, name and cut
  int64_t bytes_ = 0;
};

/// Blocks of a rank that has a run of the bytes of each, and gathers the others' (nn::Gather).
class SpreadSource final : public BlockSource {
 public:
  /// The blocks of `portion`, of which this rank keeps what `shard` has; `meta` says what they ask
  /// for, `weights` has it, on the host or on meta. Every rank has all of `pairs`; null: none.
  SpreadSource(const models::PipelineSpec& spec, const std::shared_ptr<const nn::Weights>& meta,
               const nn::Weights& weights, nn::DType dtype, const nn::Portion& portion,
               const nn::Shard& shard, tensor::Device device,
               std::shared_ptr<const nn::LowRanks> pairs = nullptr);
  std::shared_ptr<const nn::Weights> weights(int block, const nn::Seams& seams) const override;
  const nn::SpreadBlocks& blocks() const { return blocks_; }

 private:
  std::vector<BlockLayout> layouts_;
  nn::SpreadBlocks blocks_;
  std::shared_ptr<const nn::LowRanks> pairs_;
};

}  // namespace tessera::runtime

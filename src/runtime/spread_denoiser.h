#pragma once

#include <memory>

#include "runtime/spread_blocks.h"

namespace tessera::runtime {

struct SpreadRest;

/// A transformer on a rank of shard=, which has a run of the bytes of every block, and of every
/// matrix and large table before and after them. Blocks are gathered one ahead, the others when
/// they are used, one at a time, and all are let go behind their use (nn::Gather). Vectors, small
/// tables and the layers of patches are whole on each rank. A request takes it `with` who gathers.
class SpreadDenoiser final : public StreamedDenoiser {
 public:
  /// The blocks of `portion`, and what stands before and after them, of which this rank keeps what
  /// `shard` has; `meta` says what they ask for, `weights` has it, on the host or on meta.
  /// Every rank has all of `pairs`; null: none.
  SpreadDenoiser(const models::PipelineSpec& spec, const std::shared_ptr<const nn::Weights>& meta,
                 const nn::Weights& weights, nn::DType dtype, const nn::Portion& portion,
                 const nn::Shard& shard, tensor::Device device,
                 const std::shared_ptr<const nn::LowRanks>& pairs = nullptr);
  /// Counts what it makes of whole weights among the buffers.
  std::unique_ptr<nn::Denoiser> with(nn::Gather& gather) const override;
  /// Throws Error(usage): nobody gathers.
  nn::ContextPtr prepare(const nn::Conditioning& conditioning,
                         const nn::TokenShape& shape) const override;

 private:
  SpreadDenoiser(const models::PipelineSpec& spec, nn::DType dtype, const nn::Portion& portion,
                 std::shared_ptr<const SpreadSource> blocks, std::shared_ptr<const SpreadRest> rest,
                 std::shared_ptr<const nn::LowRanks> pairs);

  const models::PipelineSpec& spec_;
  const nn::DType dtype_;
  const nn::Portion portion_;
  const std::shared_ptr<const SpreadSource> blocks_;
  const std::shared_ptr<const SpreadRest> rest_;
  const std::shared_ptr<const nn::LowRanks> pairs_;
};

}  // namespace tessera::runtime

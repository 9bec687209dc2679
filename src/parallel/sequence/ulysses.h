#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "nn/seams.h"
#include "parallel/partition.h"

namespace tessera::parallel {

/// Attention of ranks that hold different tokens of the same sequences, by heads: an exchange gives
/// each rank the queries, keys and values of all these tokens for a run of the heads, another one
/// brings what they saw back to the ranks of the tokens (DeepSpeed-Ulysses, Jacobs et al. 2023).
/// Text of joint sites is among the tokens. Runs of heads and shards of tokens may be uneven.
class Ulysses final : public nn::Attention {
 public:
  /// Attention over the tokens of all these ranks, of models of a geometry that outlives it.
  using Inside = std::function<std::unique_ptr<nn::Attention>(const nn::Geometry&)>;
  /// `group`: the ranks `ranks` of the partition, at most as many as any site has heads of keys.
  /// All three outlive this.
  Ulysses(const nn::Geometry& geometry, comm::Communicator& group, std::vector<int> ranks,
          const Partition& partition, const Inside& inside);

  nn::Tensor attend(int site, const nn::TokenView& view, const nn::Qkv& heads) override;
  void begin_step(const nn::StepInfo& info) override { inside_->begin_step(info); }
  void finish() override { inside_->finish(); }

 private:
  nn::Qkv gathered(const nn::AttentionSite& site, const std::vector<nn::TokenView>& views,
                   const nn::Qkv& heads);
  nn::Tensor returned(const nn::AttentionSite& site, const std::vector<nn::TokenView>& views,
                      const nn::Tensor& seen);

  const nn::Geometry& geometry_;
  comm::Communicator& group_;
  std::vector<int> ranks_;
  const Partition& partition_;
  nn::Geometry mine_;  // of my heads
  std::unique_ptr<nn::Attention> inside_;
};

}  // namespace tessera::parallel

#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "nn/seams.h"
#include "parallel/partition.h"

namespace tessera::parallel {

/// DeepSpeed-Ulysses (Jacobs et al. 2023) among ranks with different tokens of the same sequences:
/// an exchange gives each rank queries, keys and values of all tokens for a run of heads; a second
/// exchange returns the results to the ranks of the tokens. Joint text counts as tokens. Heads and
/// tokens may be uneven.
class Ulysses final : public nn::Attention {
 public:
  /// Attention over the tokens of all these ranks, for models of a geometry with a longer lifetime.
  using InnerAttentionFactory = std::function<std::unique_ptr<nn::Attention>(const nn::Geometry&)>;
  /// `group`: the ranks `ranks` of the partition, at most the number of key heads of any site. All
  /// three must outlive this object.
  Ulysses(const nn::Geometry& geometry, comm::Communicator& group, std::vector<int> ranks,
          const Partition& partition, const InnerAttentionFactory& factory);

  nn::Tensor attend(int site, const nn::TokenView& view, const nn::Qkv& heads) override;
  void begin_step(const nn::StepInfo& info) override { inner_->begin_step(info); }
  void finish() override { inner_->finish(); }

 private:
  nn::Qkv gathered(const nn::AttentionSite& site, const std::vector<nn::TokenView>& views,
                   const nn::Qkv& heads);
  nn::Tensor returned(const nn::AttentionSite& site, const std::vector<nn::TokenView>& views,
                      const nn::Tensor& output);

  const nn::Geometry& geometry_;
  comm::Communicator& group_;
  std::vector<int> ranks_;
  const Partition& partition_;
  nn::Geometry own_geometry_;  // own heads
  std::unique_ptr<nn::Attention> inner_;
};

}  // namespace tessera::parallel

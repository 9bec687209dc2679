#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "nn/moe/backend.h"
#include "parallel/experts/fused_lanes.h"
#include "parallel/experts/shared_launches.h"

namespace tessera::parallel {

/// Expert parallelism without a bulk exchange: each layer is a single operator over its ranks
/// (fused/operator), with rows in a heap shared by all ranks; or several operators beside each
/// other, each for a block of the tokens: the gates of the blocks are tasks of all threads, and
/// rows of a block leave before the next one has its experts. Results equal one rank bit by bit.
class FusedExperts final : public nn::ExpertBackend {
 public:
  using Size = FusedSize;
  /// `group`: ranks that share the experts; must outlive this object. `blocks`: of the gate; 0:
  /// chosen by the number of rows.
  FusedExperts(comm::Communicator& group, Size size, int blocks = 0)
      : group_(group), size_(std::move(size)), blocks_(blocks) {}

  /// Ranks with tokens on a GPU share the GPU: a layer is a single launch for all ranks.
  nn::Tensor run(const nn::MoeCall& call, const nn::Tensor& tokens, const nn::Gate& gate,
                 const nn::ExpertWeights& weights, nn::MoeLog& log) override;
  /// The operators of the present layer, for observers; null before the first.
  FusedLanes* lanes() const { return lanes_.get(); }

 private:
  // The choice of all tokens and their rows.
  struct LayerOutcome {
    ops::Routing routing;
    nn::Tensor rows, result;
  };
  int blocks_for(const nn::Gate& gate) const;
  nn::Tensor launched(const nn::MoeCall& call, const nn::Tensor& tokens, const nn::Gate& gate,
                      const nn::ExpertWeights& weights, nn::MoeLog& log);
  LayerOutcome whole(const nn::Tensor& tokens, const nn::Gate& gate,
                     const nn::ExpertWeights& weights);
  LayerOutcome in_blocks(const nn::Tensor& tokens, const nn::Gate& gate,
                         const nn::ExpertWeights& weights);
  /// All ranks' rows for the own experts.
  int64_t exchange(int site, bool dry_run) const;

  comm::Communicator& group_;
  const Size size_;
  int blocks_;
  std::unique_ptr<FusedLanes> lanes_;
  std::unique_ptr<SharedLaunches> launches_;  // on a GPU
};

}  // namespace tessera::parallel

#pragma once

#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "nn/block_stack.h"
#include "parallel/partition.h"
#include "parallel/sequence/group_peers.h"

namespace tessera::parallel {

/// The tokens of a pass of a language model, in packed order, as one run for each rank; runs of
/// uneven length, and of none, are legal.
class TokenRuns {
 public:
  TokenRuns(comm::Communicator& group, const Plan& plan)
      : group_(group), peers_(group), plan_(plan), partition_(Partition::of_pass(plan, {})) {}

  /// A pass begins: its tokens, on every rank alike.
  void cut(const nn::TokenView& whole);
  const Partition& partition() const { return partition_; }
  /// My tokens; `rows` are all of the pass.
  const nn::TokenView& mine() const { return mine_; }
  /// Places of a rank's tokens in the packed order.
  nn::Range range() const { return partition_.run(group_.rank()); }
  int64_t tokens() const { return nn::token_count(partition_.pass().body); }
  comm::Communicator& group() const { return group_; }

 private:
  comm::Communicator& group_;
  GroupPeers peers_;
  Plan plan_;
  Partition partition_;
  nn::TokenView mine_;
};

/// A language model of which every rank runs its own tokens of each pass. Callers see whole passes:
/// they give all ids and get the logits of all that they ask for, on every rank the same bits.
class SplitTokenModel : public nn::TokenModel {
 public:
  /// `model` outlives this.
  SplitTokenModel(const nn::TokenModel& model, std::shared_ptr<TokenRuns> runs)
      : model_(model), runs_(std::move(runs)) {}

  const nn::Geometry& geometry() const override { return model_.geometry(); }
  nn::DType dtype() const override { return model_.dtype(); }
  int64_t vocabulary() const override { return model_.vocabulary(); }
  nn::PlacementPtr place(const nn::TokenView& view) const override;
  nn::Hidden embed(std::span<const int32_t> ids, const nn::TokenView& view) const override;
  void block(int index, const nn::StepContext& step, const nn::Placement& placement,
             nn::Hidden& hidden, const nn::Seams& seams) const override;
  /// The last stream of the tokens of `of` travels, not their logits: it is smaller.
  nn::Tensor logits(const nn::Hidden& hidden, const nn::TokenView& view,
                    const nn::Segments& of) const override;

 private:
  const nn::TokenModel& model_;
  std::shared_ptr<TokenRuns> runs_;
};

}  // namespace tessera::parallel

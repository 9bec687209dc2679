#pragma once

#include <memory>

#include "nn/selective_experts.h"
#include "parallel/experts/exchange.h"
#include "parallel/sequence/split_tokens.h"

namespace tessera::parallel {

/// Votes, flags and counts over the ranks of a group. Whole numbers: no order changes them.
class SummedVotes : public nn::SelectionPeers {
 public:
  explicit SummedVotes(comm::Communicator& group) : group_(group) {}
  void sum(std::span<int64_t> values) override;
  void max(std::span<int64_t> values) override;

 private:
  comm::Communicator& group_;
};

/// Expert parallelism of language models: each rank routes its own tokens inside the coreset of all
/// of them, and sends their rows to the ranks that have the experts. Results and coresets are those
/// of one rank, bit by bit.
class SplitSelectiveExperts : public nn::SelectiveExperts {
 public:
  SplitSelectiveExperts(const nn::SelectionRule& rule, std::shared_ptr<TokenRuns> runs,
                        ExpertExchange exchange)
      : SelectiveExperts(rule),
        runs_(std::move(runs)),
        exchange_(std::move(exchange)),
        votes_(runs_->group()) {}

 protected:
  Place place() const override { return {&votes_, runs_->range().begin, runs_->tokens()}; }
  nn::Tensor run(int site, const nn::Tensor& tokens, const ops::Routing& routing,
                 const nn::ExpertBank& bank) override;

 private:
  std::shared_ptr<TokenRuns> runs_;
  ExpertExchange exchange_;
  mutable SummedVotes votes_;
};

}  // namespace tessera::parallel

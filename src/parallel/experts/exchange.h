#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nn/moe/expert_cache.h"
#include "parallel/experts/carrier.h"
#include "tessera/plan.h"

namespace tessera::parallel {

/// Parts of a message to the experts: rows [n, hidden], and the bytes of their experts' numbers.
struct MessageParts {
  tensor::Tensor rows, numbers;
};

/// Moves rows between ranks that share the experts of a layer: one exchange to the experts with
/// rows followed by their experts' numbers, and one exchange back.
class ExpertExchange final : public ExpertCarrier {
 public:
  /// `group`: ranks that share the experts; null: a single rank. `owner[e]`: the rank of expert e.
  /// `cache`: own experts without weights in the layer; null: none missing.
  ExpertExchange(comm::Communicator* group, std::vector<int> owner,
                 std::shared_ptr<nn::ExpertCache> cache = nullptr);

  ExpertFlight dispatch(int site, const tensor::Tensor& tokens, const tensor::Tensor& ids,
                        const std::vector<int32_t>& assignments,
                        nn::ExpertWeights weights) override;
  void compute(ExpertFlight& flight, bool waits = false) override;
  tensor::Tensor bring(ExpertFlight& flight, const tensor::Tensor& ids,
                       const tensor::Tensor& like) override;
  using ExpertCarrier::finish;
  /// Waits for results: rows [tokens * k, hidden] receive those of flight.assignments, each in
  /// place.
  void finish(ExpertFlight& flight, const tensor::Tensor& rows) const;

  int owner(int32_t expert) const override { return owner_.at(static_cast<size_t>(expert)); }
  int ranks() const override { return group_ ? group_->size() : 1; }
  int rank() const { return group_ ? group_->rank() : 0; }

 private:
  /// flight.assignments and flight.begin: one stable counting sort over experts, rank by rank.
  void group(const int32_t* expert, const std::vector<int32_t>& assignments,
             ExpertFlight& flight) const;
  /// The experts of all received rows, i32 [rows, 1], on the same device.
  tensor::Tensor read_numbers(const std::vector<MessageParts>& parts) const;
  comm::Exchange start(std::vector<tensor::Tensor> messages, const char* operation, int site) const;
  comm::Communicator* group_;
  std::shared_ptr<nn::ExpertCache> cache_;
  std::vector<int> owner_;
  std::vector<size_t> place_;       // index of each expert in the order of ranks
  std::vector<size_t> last_place_;  // end of each rank's experts
};

/// Number of experts among the ids, on the host.
int64_t distinct_experts(const tensor::Tensor& ids, int64_t experts);
/// Experts split into as many runs as ranks: expert e belongs to the rank with its
/// run.
std::vector<int> experts_in_blocks(int experts, int ranks);
/// Reasons against the distribution of a model's experts under a plan, one sentence each.
std::vector<std::string> placement_problems(const Plan& plan, const nn::Geometry& geometry);
/// The rank, within the group, of each expert under a plan. Throws Error(plan) for a placement
/// without a rank for each.
std::vector<int> expert_owners(const Plan& plan, int experts);
/// Experts of each routed layer on a rank; 0: the layer has none.
int experts_of(const Plan& plan, const nn::Geometry& geometry, int rank);

}  // namespace tessera::parallel

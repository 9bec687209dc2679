#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/collectives.h"
#include "nn/moe/expert_cache.h"
#include "nn/seams.h"
#include "tensor/tensor.h"
#include "tessera/plan.h"

namespace tessera::parallel {

/// Rows of one layer and step on their way to their experts and back. It co-owns all it needs.
struct ExpertFlight {
  int site = 0;
  nn::ExpertWeights weights;
  std::vector<int32_t> assignments;  ///< token * k + slot of the rows sent, by rank, then by expert
  std::vector<int64_t> begin;        ///< rank r gets assignments [begin[r], begin[r + 1])
  comm::Exchange dispatch, combine;
  bool computed = false;
  int64_t hidden = 0;     ///< elements of a row
  int64_t row_bytes = 0;  ///< on the wire
  /// Bytes of rows that this rank holds or waits for.
  int64_t bytes() const { return static_cast<int64_t>(assignments.size()) * row_bytes; }
};

/// Of a message to the experts: rows [n, hidden], and the bytes of their experts' numbers.
struct MessageParts {
  tensor::Tensor rows, numbers;
};

/// Moves rows between the ranks that share the experts of a layer: one exchange to the experts,
/// whose messages are rows and, behind them, the bytes of their experts' numbers; one back.
class ExpertExchange {
 public:
  /// `group`: ranks that share the experts; null: this rank has them all. `owner[e]`: who has
  /// expert e. `cache`: of mine that the weights of a layer lack; null: they lack none.
  ExpertExchange(comm::Communicator* group, std::vector<int> owner,
                 std::shared_ptr<nn::ExpertCache> cache = nullptr);

  /// Sends the rows of `assignments` (token * k + slot, any order): tokens [n, hidden], ids i32 [n,
  /// k].
  ExpertFlight dispatch(int site, const tensor::Tensor& tokens, const tensor::Tensor& ids,
                        const std::vector<int32_t>& assignments, nn::ExpertWeights weights) const;
  /// Waits for the rows that others sent, runs my experts on all of them, sends the results back.
  /// `waits`: my own results are kept for long, and shall not keep those of others in memory.
  void compute(ExpertFlight& flight, bool waits = false) const;
  /// Waits for the results: rows [tokens * k, hidden] get those of flight.assignments, each at its
  /// place.
  void finish(ExpertFlight& flight, const tensor::Tensor& rows) const;

  /// Who has an expert.
  int owner(int32_t expert) const { return owner_.at(static_cast<size_t>(expert)); }
  int ranks() const { return group_ ? group_->size() : 1; }
  int rank() const { return group_ ? group_->rank() : 0; }

 private:
  /// flight.assignments and flight.begin: one stable counting sort over experts, rank by rank.
  void group(const int32_t* expert, const std::vector<int32_t>& assignments,
             ExpertFlight& flight) const;
  /// The experts of all rows that arrived, i32 [rows, 1], where they are.
  tensor::Tensor read_numbers(const std::vector<MessageParts>& parts) const;
  comm::Exchange start(std::vector<tensor::Tensor> messages, const char* operation, int site) const;
  comm::Communicator* group_;
  std::shared_ptr<nn::ExpertCache> cache_;
  std::vector<int> owner_;
  std::vector<size_t> place_;       // of each expert among all, in the order of their ranks
  std::vector<size_t> last_place_;  // of each rank's experts: the end
};

/// Experts that any of the ids, on the host, names.
int64_t distinct_experts(const tensor::Tensor& ids, int64_t experts);
/// Experts cut into as many runs as there are ranks: expert e belongs to the rank whose run holds
/// it.
std::vector<int> experts_in_blocks(int experts, int ranks);
/// Why a plan cannot spread the experts of a model over ranks, one sentence each.
std::vector<std::string> placement_problems(const Plan& plan, const nn::Geometry& geometry);
/// The rank, in its group, of each expert under a plan. Throws Error(plan) for a placement that
/// does not name a rank for each.
std::vector<int> expert_owners(const Plan& plan, int experts);
/// How many experts of each routed layer a rank has; 0: there are none.
int experts_of(const Plan& plan, const nn::Geometry& geometry, int rank);

}  // namespace tessera::parallel

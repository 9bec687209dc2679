#pragma once

#include <functional>
#include <list>
#include <map>
#include <optional>
#include <vector>

#include "nn/seams.h"
#include "parallel/experts/drift.h"
#include "parallel/experts/exchange.h"

namespace tessera::parallel {

/// The results of a call of a layer: tokens, routing, and the experts' outputs. A row belongs to an
/// assignment, token * k + slot.
struct CallResults {
  nn::Segments segments;         ///< its tokens, in order
  nn::Segments needed;           ///< tokens needed by later calls
  ops::Routing routing;          ///< on the host
  bool assumed = false;          ///< a dry run made the routing up
  nn::Tensor rows;               ///< [tokens * k, hidden]; undefined until received
  std::vector<int32_t> sources;  ///< step in which each row was computed
  RowDrift drift;                ///< for adaptive layers
  nn::Tensor tokens;             ///< for adaptive layers, until the next step
  std::optional<ExpertFlight> flight;
  /// Assignments `to` with the rows of assignments `from` in a call of the step before.
  struct ReusedRows {
    const CallResults* call = nullptr;
    std::vector<int32_t> from, to;
  };
  std::vector<ReusedRows> reused;

  /// Takes the row of assignment `old` of an earlier call.
  void reuse(int64_t assignment, const CallResults& call, int64_t old);
  int64_t bytes() const;
};

/// The place of a kept token.
struct KeptToken {
  CallResults* call = nullptr;
  int64_t token = 0;  ///< index in the call
};

/// Results of a layer from step to step: a token's rows are found by step, sequence and id, for any
/// split of the steps into calls.
class StaleResults {
 public:
  /// Starts another call.
  CallResults& launch(int step, const nn::Segments& segments);
  /// All calls of a step, in order; empty without any.
  std::list<CallResults>& at(int step) { return steps_[step]; }
  /// Tokens of a step. Throws Error(rank) for tokens outside the step.
  std::vector<KeptToken> find(int step, const nn::Segments& segments);
  /// Data of a step's calls for tokens, `rows_per_token` rows each: a call's own tensor for exactly
  /// these tokens, else gathered. `like`: the tensor without tokens.
  nn::Tensor read(int step, const nn::Segments& segments, int64_t rows_per_token,
                  const nn::Tensor& like,
                  const std::function<nn::Tensor(const CallResults&)>& part);
  /// Drops tokens without later reads in steps before `lowest`, and calls without tokens.
  void forget(int lowest, const nn::Segments& segments);
  void forget_before(int step) { steps_.erase(steps_.begin(), steps_.lower_bound(step)); }
  /// The first step with calls needed by work under way from `lowest` on.
  int needed(int lowest) const;
  int64_t bytes() const;

 private:
  std::map<int, std::list<CallResults>> steps_;
};

}  // namespace tessera::parallel

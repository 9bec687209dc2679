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

/// The results of one call of a layer: who, how much, and the experts' outputs. A row of them is an
/// assignment, token * k + slot.
struct CallResults {
  nn::Segments of;               ///< its tokens, in order
  nn::Segments left;             ///< those that a later call may still ask for
  ops::Routing routing;          ///< on the host
  nn::Tensor rows;               ///< [tokens * k, hidden]; undefined until they are home
  std::vector<int32_t> sources;  ///< step in which each row was computed
  RowDrift drift;                ///< of an adaptive layer
  nn::Tensor tokens;             ///< of an adaptive layer, until the next step has seen them
  std::optional<ExpertFlight> flight;
  /// Assignments `to` whose rows are those of the assignments `from` of a call of the step before.
  struct Reused {
    const CallResults* call = nullptr;
    std::vector<int32_t> from, to;
  };
  std::vector<Reused> reused;

  /// The row of an assignment is that of assignment `old` of an earlier call.
  void reuse(int64_t assignment, const CallResults& call, int64_t old);
  int64_t bytes() const;
};

/// Where a token is kept.
struct KeptToken {
  CallResults* call = nullptr;
  int64_t token = 0;  ///< its place there
};

/// What a layer keeps from step to step: a token's rows are found by step, sequence and id, however
/// the steps were cut into calls.
class StaleResults {
 public:
  /// Another call begins.
  CallResults& launch(int step, const nn::Segments& of);
  /// All calls of a step, in order; empty if none is kept.
  std::list<CallResults>& at(int step) { return steps_[step]; }
  /// Tokens of a step. Throws Error(rank) for one that the step did not compute.
  std::vector<KeptToken> find(int step, const nn::Segments& of);
  /// What the calls of a step hold for tokens, `each` rows a token: itself if one call has just
  /// these, else gathered. `like`: the tensor of no token.
  nn::Tensor read(int step, const nn::Segments& of, int64_t each, const nn::Tensor& like,
                  const std::function<nn::Tensor(const CallResults&)>& part);
  /// Tokens that no later call asks for in steps before `lowest`; calls without others go.
  void forget(int lowest, const nn::Segments& of);
  void forget_before(int step) { steps_.erase(steps_.begin(), steps_.lower_bound(step)); }
  /// The first step whose calls are needed by those under way from `lowest` on.
  int needed(int lowest) const;
  int64_t bytes() const;

 private:
  std::map<int, std::list<CallResults>> steps_;
};

}  // namespace tessera::parallel

#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "nn/seams.h"
#include "parallel/experts/drift.h"
#include "parallel/experts/exchange.h"
#include "parallel/experts/timetable.h"

namespace tessera::parallel {

/// What one call of a layer sent and read.
struct ExpertEvent {
  int step = 0, layer = 0;
  int64_t tokens = 0, distinct = 0;  ///< experts with at least one token in this step's routing
  std::vector<int64_t> rows;  ///< (token, slot) rows of this step's routing, by receiving rank
  bool sent = true;           ///< false: no step would read them, so they stay at home
  int64_t changed = 0;        ///< sent although their slot was to be left out
  int lag = 0, oldest = 0;    ///< age of the result that was read, and of its oldest row
};

/// Expert parallelism with results that may be stale: any plan of DICE (ICCV 2025), on any number
/// of ranks, alone too. What a step reads is the Timetable's; messages only carry it.
class ScheduledExperts : public nn::Experts {
 public:
  /// kept(row, id): the slot that KeptSlot::random keeps for a token, before modulo k.
  /// travels(): called when rows are on their way and nothing is left to do but to wait for them.
  ScheduledExperts(const nn::Geometry& geometry, const Plan& plan, int steps,
                   ExpertExchange exchange, std::function<uint32_t(int row, int64_t id)> kept,
                   std::function<void()> travels = {});

  nn::Tensor apply(int site, const nn::TokenView& view, const nn::Tensor& tokens,
                   const nn::Router& router, const nn::ExpertBank& bank) override;
  void finish() override;

  /// Every call since the start, in order.
  const std::vector<ExpertEvent>& events() const { return events_; }
  /// The most bytes of rows that were kept from one call to the next, or while others worked.
  int64_t peak_kept_bytes() const { return peak_kept_; }

 private:
  /// The result of a source step: who, how much, and the experts' outputs.
  struct Result {
    ops::Routing routing;
    nn::Tensor rows;               ///< [tokens * k, hidden]; undefined until they are home
    std::vector<int32_t> sources;  ///< step in which each row was computed
    /// Pairs `to` whose rows are those of the pairs `from` of the step before.
    struct Reused {
      std::vector<int32_t> from, to;
      bool empty() const { return to.empty(); }
    } reused;
    RowDrift drift;  ///< of an adaptive layer
    std::optional<ExpertFlight> flight;
    /// The row of a pair is that of pair `old` of the step before.
    void reuse(int64_t pair, int64_t old, const Result& before);
  };
  struct Layer {
    std::map<int, Result> results;  ///< by source step
    nn::Tensor tokens;              ///< of the last step; of an adaptive layer
  };

  Result& launch(int layer, const nn::TokenView& view, const nn::Tensor& tokens,
                 ops::Routing routing, const nn::ExpertBank& bank, ExpertEvent& event);
  /// Rows to send; the others become `reused`.
  std::vector<int32_t> choose(int layer, const nn::TokenView& view, const nn::Tensor& tokens,
                              Result& result, ExpertEvent& event);
  std::vector<int32_t> choose_by_slot(const nn::TokenView& view, const Result& before,
                                      Result& result, ExpertEvent& event) const;
  std::vector<int32_t> choose_by_drift(const nn::TokenView& view, const std::vector<float>& moves,
                                       const Result& before, Result& result,
                                       ExpertEvent& event) const;
  void count(const std::vector<int32_t>& pairs, const Result& result, ExpertEvent& event) const;
  void compute(Result& result);
  void let_others_work();
  Result& bring_home(int layer, int source, const nn::Tensor& like);
  void forget(int layer);
  int64_t kept_bytes() const;

  Plan plan_;
  Timetable timetable_;
  ExpertExchange exchange_;
  std::function<uint32_t(int, int64_t)> kept_;
  std::function<void()> travels_;
  std::vector<int> layer_of_site_;
  std::vector<Layer> layers_;
  Result* waiting_ = nullptr;  // launched last, its experts not yet run
  std::vector<ExpertEvent> events_;
  int64_t peak_kept_ = 0;
};

}  // namespace tessera::parallel

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "nn/moe/backend.h"
#include "parallel/experts/stale_results.h"
#include "parallel/experts/timetable.h"

namespace tessera::parallel {

/// Neighbouring ids of a sample with a common budget: 0 to 63, 64 to 127, ... (adaptive).
inline constexpr int64_t kBudgetBlock = 64;

/// Inputs of a schedule from the request; either may be empty.
struct ScheduleHooks {
  /// The slot kept for a token by KeptSlot::random, before modulo k.
  std::function<uint32_t(int sequence, int64_t id)> kept_slot{};
  /// Called when rows travel and only waiting is left.
  std::function<void()> travels{};
};

/// Expert parallelism with possibly stale results: any plan of DICE (ICCV 2025), any number of
/// ranks. The Timetable decides the reads of a step; messages only carry data.
class ScheduledExchange final : public nn::ExpertBackend {
 public:
  ScheduledExchange(const Plan& plan, Timetable timetable, std::unique_ptr<ExpertCarrier> carrier,
                    ScheduleHooks hooks = {});
  ScheduledExchange(const Plan& plan, Timetable timetable, ExpertExchange exchange,
                    ScheduleHooks hooks = {});

  nn::Tensor run(const nn::MoeCall& call, const nn::Tensor& tokens, const nn::Gate& gate,
                 const nn::ExpertWeights& weights, nn::MoeLog& log) override;
  void finish() override;

 private:
  struct ReadRows {
    nn::Tensor rows, weights;  ///< combined rows; weights on the host
    int oldest = 0;            ///< age of the oldest row
  };
  CallResults& launch(const nn::MoeCall& call, const nn::Tensor& tokens, ops::Routing chosen,
                      const nn::ExpertWeights& weights, nn::MoeEvent& event);
  /// Rows to send; the rest goes to `reused`.
  std::vector<int32_t> choose(const nn::MoeCall& call, const nn::Tensor& tokens,
                              CallResults& results, nn::MoeEvent& event);
  std::vector<int32_t> choose_by_slot(const nn::TokenView& view,
                                      const std::vector<KeptToken>& before, CallResults& results,
                                      nn::MoeEvent& event) const;
  std::vector<int32_t> choose_by_drift(const nn::TokenView& view, const std::vector<float>& moves,
                                       const std::vector<KeptToken>& before, CallResults& results,
                                       nn::MoeEvent& event) const;
  void count(const std::vector<int32_t>& assignments, const CallResults& results,
             nn::MoeEvent& event) const;
  /// `waits`: results are not read at once.
  void compute(CallResults& call, bool waits);
  void let_others_work(nn::MoeLog& log);
  /// All calls of a step, in order, so ranks without tokens take part in each.
  void bring_home(int site, int source, const nn::Tensor& like, nn::MoeLog& log);
  ReadRows read(const nn::MoeCall& call, int source, const CallResults& results,
                const nn::Tensor& tokens);
  void forget(const nn::MoeCall& call);
  int64_t kept_bytes() const;

  Plan plan_;
  Timetable timetable_;
  std::unique_ptr<ExpertCarrier> carrier_;
  ScheduleHooks hooks_;
  std::map<int, StaleResults> sites_;
  CallResults* waiting_ = nullptr;  // launched last, experts not computed yet
};

}  // namespace tessera::parallel

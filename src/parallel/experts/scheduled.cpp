#include "parallel/experts/scheduled.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/fail.h"
#include "ops/elementwise.h"
#include "ops/experts.h"
#include "tensor/uncounted.h"

namespace tessera::parallel {

using tensor::Tensor;

namespace {

// The assignment of an expert among the k of a token in an earlier routing, or -1.
int64_t place_of(int32_t expert, const KeptToken& before) {
  const Tensor& ids = before.call->routing.ids;
  const int64_t k = ids.size(1);
  const int32_t* old = ids.data<int32_t>() + before.token * k;
  const int64_t slot = std::find(old, old + k, expert) - old;
  return slot < k ? before.token * k + slot : -1;
}

// On meta a copy that the run does not make.
Tensor weights_on(tensor::Device device, const Tensor& weights) {
  if (device != tensor::Device::meta) return weights.to(device);
  const tensor::Uncounted aside(tensor::Counts::work);
  return weights.to(device);
}

// Tokens with a common budget, by number: those in a block of ids, so a split between blocks does
// not change the choice.
std::vector<int64_t> budget_blocks(const nn::Segments& body) {
  std::vector<int64_t> sizes;
  for (const nn::Segment& segment : body)
    for (int64_t id = segment.ids.begin, next = 0; id < segment.ids.end; id = next) {
      next = std::min((id / kBudgetBlock + 1) * kBudgetBlock, segment.ids.end);
      sizes.push_back(next - id);
    }
  return sizes;
}

}  // namespace

ScheduledExchange::ScheduledExchange(const Plan& plan, Timetable timetable,
                                     std::unique_ptr<ExpertCarrier> carrier, ScheduleHooks hooks)
    : plan_(plan),
      timetable_(std::move(timetable)),
      carrier_(std::move(carrier)),
      hooks_(std::move(hooks)) {}

ScheduledExchange::ScheduledExchange(const Plan& plan, Timetable timetable, ExpertExchange exchange,
                                     ScheduleHooks hooks)
    : ScheduledExchange(plan, std::move(timetable),
                        std::make_unique<ExpertExchange>(std::move(exchange)), std::move(hooks)) {}

std::vector<int32_t> ScheduledExchange::choose(const nn::MoeCall& call, const Tensor& tokens,
                                               CallResults& results, nn::MoeEvent& event) {
  const int step = call.step.index;
  StaleResults& stale_results = sites_[call.site];
  const Tensor& ids = results.routing.ids;
  results.sources.assign(static_cast<size_t>(ids.elements()), step);
  const bool adaptive = timetable_.adaptive(call.site), full = timetable_.full(step, call.site);
  std::vector<float> moves;
  if (adaptive) {
    results.drift.moved.assign(static_cast<size_t>(ids.elements()), 0.0f);
    if (!full)
      moves = relative_moves(
          stale_results.read(step - 1, results.segments, 1, tokens,
                             [](const CallResults& before) { return before.tokens; }),
          tokens);
    for (CallResults& before : stale_results.at(step - 1))
      if (before.segments == results.segments) before.tokens = {};
    results.tokens = tokens;
  }
  if (!full) {
    const std::vector<KeptToken> before = stale_results.find(step - 1, results.segments);
    return adaptive ? choose_by_drift(call.view, moves, before, results, event)
                    : choose_by_slot(call.view, before, results, event);
  }
  std::vector<int32_t> assignments;
  for (int64_t assignment = 0; assignment < ids.elements(); ++assignment)
    if (ids.data<int32_t>()[assignment] >= 0)
      assignments.push_back(static_cast<int32_t>(assignment));
  return assignments;
}

// All but one slot of a token are left out if the step before has a row of the same expert. On
// an assumed routing, old rows are kept and new rows sent, as either may happen.
std::vector<int32_t> ScheduledExchange::choose_by_slot(const nn::TokenView& view,
                                                       const std::vector<KeptToken>& before,
                                                       CallResults& results,
                                                       nn::MoeEvent& event) const {
  const Tensor& ids = results.routing.ids;
  const int64_t k = ids.size(1);
  std::vector<int32_t> assignments;
  int64_t t = 0;
  for (const nn::Segment& segment : view.body)
    for (int64_t token = segment.ids.begin; token < segment.ids.end; ++token, ++t) {
      int64_t keep = 0;
      if (plan_.conditional == KeptSlot::high) keep = k - 1;
      if (plan_.conditional == KeptSlot::random)
        keep = hooks_.kept_slot(segment.sequence, token) % k;
      const KeptToken& was = before[static_cast<size_t>(t)];
      for (int64_t assignment = t * k; assignment < (t + 1) * k; ++assignment) {
        const int32_t id = ids.data<int32_t>()[assignment];
        if (id < 0) continue;
        const int64_t old = assignment == t * k + keep ? -1 : place_of(id, was);
        if (old >= 0) results.reuse(assignment, *was.call, old);
        if (old >= 0 && !results.assumed) continue;
        event.changed += assignment != t * k + keep;
        assignments.push_back(static_cast<int32_t>(assignment));
      }
    }
  return assignments;
}

// In each block of tokens, sends the rows with the most wrong old results: first order in the
// movement of their tokens. Rows of new experts are always sent, and count.
std::vector<int32_t> ScheduledExchange::choose_by_drift(const nn::TokenView& view,
                                                        const std::vector<float>& moves,
                                                        const std::vector<KeptToken>& before,
                                                        CallResults& results,
                                                        nn::MoeEvent& event) const {
  const Tensor& ids = results.routing.ids;
  const int64_t k = ids.size(1);
  const float* weight = results.routing.weights.data<float>();
  std::vector<int32_t> assignments;
  std::vector<Candidate> candidates;
  int64_t first = 0;
  for (const int64_t tokens : budget_blocks(view.body)) {
    const int64_t last = first + tokens * k;
    candidates.clear();
    int64_t allowed = (plan_.budget * (last - first) + 50) / 100;
    if (plan_.budget > 0) allowed = std::max<int64_t>(allowed, 1);  // for short blocks
    for (int64_t assignment = first; assignment < last; ++assignment) {
      const int32_t id = ids.data<int32_t>()[assignment];
      if (id < 0) continue;
      const KeptToken& was = before[static_cast<size_t>(assignment / k)];
      const int64_t old = place_of(id, was);
      if (old < 0) {
        assignments.push_back(static_cast<int32_t>(assignment));
        ++event.changed;
        --allowed;
        continue;
      }
      const auto at = static_cast<size_t>(old);
      const float movement = was.call->drift.moved[at] + moves[static_cast<size_t>(assignment / k)];
      const float error = std::fabs(weight[assignment]) * movement * was.call->drift.length[at];
      results.drift.moved[static_cast<size_t>(assignment)] = movement;
      candidates.push_back({assignment, old, std::isfinite(error) ? error : HUGE_VALF});
    }
    first = last;
    allowed = std::clamp<int64_t>(allowed, 0, static_cast<int64_t>(candidates.size()));
    largest_first(candidates, allowed);
    for (size_t i = 0; i < candidates.size(); ++i) {
      const Candidate& row = candidates[i];
      if (static_cast<int64_t>(i) < allowed) {
        assignments.push_back(static_cast<int32_t>(row.assignment));
        results.drift.moved[static_cast<size_t>(row.assignment)] = 0;
      } else {
        results.reuse(row.assignment, *before[static_cast<size_t>(row.assignment / k)].call,
                      row.old);
      }
    }
  }
  return assignments;
}

void ScheduledExchange::count(const std::vector<int32_t>& assignments, const CallResults& results,
                              nn::MoeEvent& event) const {
  event.assignments.assign(static_cast<size_t>(carrier_->ranks()), 0);
  const int32_t* id = results.routing.ids.data<int32_t>();
  for (int32_t assignment : assignments)
    ++event.assignments[static_cast<size_t>(carrier_->owner(id[assignment]))];
}

CallResults& ScheduledExchange::launch(const nn::MoeCall& call, const Tensor& tokens,
                                       ops::Routing chosen, const nn::ExpertWeights& weights,
                                       nn::MoeEvent& event) {
  CallResults& results = sites_[call.site].launch(call.step.index, call.view.body);
  results.assumed = chosen.ids.is_meta();
  results.routing = ops::host_routing(std::move(chosen), weights.experts());  // for messages
  const std::vector<int32_t> assignments = choose(call, tokens, results, event);
  count(assignments, results, event);
  event.sent = timetable_.consumed(call.step.index, call.site);
  if (event.sent)
    results.flight =
        carrier_->dispatch(call.site, tokens, results.routing.ids, assignments, weights);
  return results;
}

void ScheduledExchange::compute(CallResults& call, bool waits) {
  if (call.flight && !call.flight->computed) carrier_->compute(*call.flight, waits);
  if (waiting_ == &call) waiting_ = nullptr;
}

void ScheduledExchange::let_others_work(nn::MoeLog& log) {
  if (!hooks_.travels) return;
  log.keep(kept_bytes());
  hooks_.travels();
}

void ScheduledExchange::bring_home(int site, int source, const Tensor& like, nn::MoeLog& log) {
  for (CallResults& call : sites_[site].at(source)) {
    if (call.rows.defined()) continue;
    if (!call.flight->computed) let_others_work(log);
    compute(call, false);
    let_others_work(log);
    const Tensor rows = carrier_->bring(*call.flight, call.routing.ids, like);
    if (!call.reused.empty()) bring_home(site, source - 1, like, log);
    for (const auto& [before, from, to] : call.reused) ops::move_rows(before->rows, from, rows, to);
    call.reused.clear();
    if (timetable_.adaptive(site)) call.drift.length = row_lengths(rows);
    call.rows = rows;
    call.flight.reset();
  }
}

ScheduledExchange::ReadRows ScheduledExchange::read(const nn::MoeCall& call, int source,
                                                    const CallResults& results,
                                                    const Tensor& tokens) {
  StaleResults& stale_results = sites_[call.site];
  const int64_t k = results.routing.ids.size(1);
  ReadRows read;
  read.rows = stale_results.read(source, results.segments, k, tokens,
                                 [](const CallResults& entry) { return entry.rows; });
  read.weights =
      plan_.scores == StaleScores::latest
          ? results.routing.weights
          : stale_results.read(source, results.segments, 1, results.routing.weights,
                               [](const CallResults& entry) { return entry.routing.weights; });
  for (const KeptToken& token : stale_results.find(source, results.segments))
    for (int64_t assignment = token.token * k; assignment < (token.token + 1) * k; ++assignment)
      read.oldest = std::max(
          read.oldest, call.step.index - token.call->sources[static_cast<size_t>(assignment)]);
  return read;
}

// Keeps results for later steps.
void ScheduledExchange::forget(const nn::MoeCall& call) {
  StaleResults& stale_results = sites_[call.site];
  const int next = call.step.index + 1;
  int lowest = next;
  if (next < timetable_.steps()) {
    lowest = next - timetable_.lag(next, call.site);
    if (!timetable_.full(next, call.site)) lowest = std::min(lowest, next - 1);
    if (!timetable_.forced(next)) lowest = stale_results.needed(lowest);
  }
  stale_results.forget(lowest, call.view.body);
}

int64_t ScheduledExchange::kept_bytes() const {
  int64_t bytes = 0;
  for (const auto& [site, stale_results] : sites_) bytes += stale_results.bytes();
  return bytes;
}

Tensor ScheduledExchange::run(const nn::MoeCall& call, const Tensor& tokens, const nn::Gate& gate,
                              const nn::ExpertWeights& weights, nn::MoeLog& log) {
  const int step = call.step.index;
  StaleResults& stale_results = sites_[call.site];
  if (timetable_.forced(step)) stale_results.forget_before(step);
  nn::MoeEvent event{.step = step, .site = call.site, .tokens = tokens.size(0), .assignments = {}};
  CallResults& results = launch(call, tokens, gate(tokens), weights, event);
  event.distinct = distinct_experts(results.routing.ids, weights.experts());
  log.chose(results.routing.ids, weights.experts());
  const Tensor shared = weights.shared_rows(tokens);
  // While these rows travel, compute received rows: of the layer before (interweaved), or of the
  // step before (displaced).
  if (waiting_ && waiting_ != &results) compute(*waiting_, true);
  for (CallResults& before : stale_results.at(step - 1)) compute(before, true);
  event.lag = timetable_.lag(step, call.site);
  if (event.lag > 0 && results.flight && plan_.schedule == ExpertSchedule::interweaved)
    waiting_ = &results;
  bring_home(call.site, step - event.lag, tokens, log);
  const ReadRows old = read(call, step - event.lag, results, tokens);
  log.show({call, tokens, gate, weights, results.routing, old.rows});
  const Tensor out = ops::combine_rows(old.rows, weights_on(tokens.device(), old.weights), shared);
  event.oldest = old.oldest;
  log.add(std::move(event));
  forget(call);
  log.keep(kept_bytes());
  carrier_->note(log);
  return out;
}

void ScheduledExchange::finish() {
  carrier_->finish();
  waiting_ = nullptr;
  sites_.clear();
}

}  // namespace tessera::parallel

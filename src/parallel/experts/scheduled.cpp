#include "parallel/experts/scheduled.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/fail.h"
#include "nn/local.h"
#include "ops/elementwise.h"
#include "ops/experts.h"

namespace tessera::parallel {

using tensor::Tensor;

namespace {

int64_t distinct(const Tensor& ids, size_t experts) {
  std::vector<bool> touched(experts);
  for (int64_t i = 0; i < ids.elements(); ++i)
    if (ids.data<int32_t>()[i] >= 0) touched[static_cast<size_t>(ids.data<int32_t>()[i])] = true;
  return std::count(touched.begin(), touched.end(), true);
}

// The place of an expert among the k of a token in an earlier routing, or -1.
int64_t place_of(int32_t expert, const Tensor& ids, int64_t token) {
  const int64_t k = ids.size(1);
  const int32_t* old = ids.data<int32_t>() + token * k;
  const int64_t slot = std::find(old, old + k, expert) - old;
  return slot < k ? token * k + slot : -1;
}

}  // namespace

ScheduledExperts::ScheduledExperts(const nn::Geometry& geometry, const Plan& plan, int steps,
                                   ExpertExchange exchange,
                                   std::function<uint32_t(int, int64_t)> kept,
                                   std::function<void()> travels)
    : plan_(plan),
      timetable_(plan, static_cast<int>(geometry.experts.size()), steps),
      exchange_(std::move(exchange)),
      kept_(std::move(kept)),
      travels_(std::move(travels)),
      layer_of_site_(static_cast<size_t>(geometry.blocks), -1),
      layers_(geometry.experts.size()) {
  for (size_t l = 0; l < geometry.experts.size(); ++l)
    layer_of_site_.at(static_cast<size_t>(geometry.experts[l].block)) = static_cast<int>(l);
}

std::vector<int32_t> ScheduledExperts::choose(int layer, const nn::TokenView& view,
                                              const Tensor& tokens, Result& result,
                                              ExpertEvent& event) {
  Layer& mine = layers_[static_cast<size_t>(layer)];
  const Tensor& ids = result.routing.ids;
  result.sources.assign(static_cast<size_t>(ids.elements()), step_.index);
  const bool adaptive = timetable_.adaptive(layer), full = timetable_.full(step_.index, layer);
  std::vector<float> moves;
  if (adaptive) {
    result.drift.moved.assign(static_cast<size_t>(ids.elements()), 0.0f);
    if (!full) moves = relative_moves(mine.tokens, tokens);
    mine.tokens = tokens;
  }
  if (!full) {
    const Result& before = mine.results.at(step_.index - 1);
    return adaptive ? choose_by_drift(view, moves, before, result, event)
                    : choose_by_slot(view, before, result, event);
  }
  std::vector<int32_t> pairs;
  for (int64_t pair = 0; pair < ids.elements(); ++pair)
    if (ids.data<int32_t>()[pair] >= 0) pairs.push_back(static_cast<int32_t>(pair));
  return pairs;
}

// All but one slot of a token are left out, if the step before has a row of the same expert.
std::vector<int32_t> ScheduledExperts::choose_by_slot(const nn::TokenView& view,
                                                      const Result& before, Result& result,
                                                      ExpertEvent& event) const {
  const Tensor& ids = result.routing.ids;
  const int64_t k = ids.size(1);
  std::vector<int32_t> pairs;
  int64_t t = 0;
  for (const nn::Segment& segment : view.body)
    for (int64_t token = segment.ids.begin; token < segment.ids.end; ++token, ++t) {
      int64_t keep = 0;
      if (plan_.conditional == KeptSlot::high) keep = k - 1;
      if (plan_.conditional == KeptSlot::random) keep = kept_(segment.row, token) % k;
      for (int64_t pair = t * k; pair < (t + 1) * k; ++pair) {
        const int32_t id = ids.data<int32_t>()[pair];
        if (id < 0) continue;
        const int64_t old = pair == t * k + keep ? -1 : place_of(id, before.routing.ids, t);
        if (old >= 0) {
          result.reuse(pair, old, before);
          continue;
        }
        event.changed += pair != t * k + keep;
        pairs.push_back(static_cast<int32_t>(pair));
      }
    }
  return pairs;
}

// Of each picture the rows go whose old results would be most wrong: first order in how far their
// tokens have moved since. Rows of new experts always go, and count.
std::vector<int32_t> ScheduledExperts::choose_by_drift(const nn::TokenView& view,
                                                       const std::vector<float>& moves,
                                                       const Result& before, Result& result,
                                                       ExpertEvent& event) const {
  const Tensor& ids = result.routing.ids;
  const int64_t k = ids.size(1);
  const float* weight = result.routing.weights.data<float>();
  std::vector<int32_t> pairs;
  std::vector<Candidate> candidates;
  int64_t first = 0;
  for (const nn::Segment& segment : view.body) {
    const int64_t last = first + segment.ids.size() * k;
    candidates.clear();
    int64_t allowed = (plan_.budget * (last - first) + 50) / 100;
    for (int64_t pair = first; pair < last; ++pair) {
      const int32_t id = ids.data<int32_t>()[pair];
      if (id < 0) continue;
      const int64_t old = place_of(id, before.routing.ids, pair / k);
      if (old < 0) {
        pairs.push_back(static_cast<int32_t>(pair));
        ++event.changed;
        --allowed;
        continue;
      }
      const auto at = static_cast<size_t>(old);
      const float moved = before.drift.moved[at] + moves[static_cast<size_t>(pair / k)];
      const float error = std::fabs(weight[pair]) * moved * before.drift.length[at];
      result.drift.moved[static_cast<size_t>(pair)] = moved;
      candidates.push_back({pair, old, std::isfinite(error) ? error : HUGE_VALF});
    }
    first = last;
    allowed = std::clamp<int64_t>(allowed, 0, static_cast<int64_t>(candidates.size()));
    largest_first(candidates, allowed);
    for (size_t i = 0; i < candidates.size(); ++i) {
      const Candidate& row = candidates[i];
      if (static_cast<int64_t>(i) < allowed) {
        pairs.push_back(static_cast<int32_t>(row.pair));
        result.drift.moved[static_cast<size_t>(row.pair)] = 0;
      } else {
        result.reuse(row.pair, row.old, before);
      }
    }
  }
  return pairs;
}

void ScheduledExperts::Result::reuse(int64_t pair, int64_t old, const Result& before) {
  reused.to.push_back(static_cast<int32_t>(pair));
  reused.from.push_back(static_cast<int32_t>(old));
  sources[static_cast<size_t>(pair)] = before.sources[static_cast<size_t>(old)];
}

void ScheduledExperts::count(const std::vector<int32_t>& pairs, const Result& result,
                             ExpertEvent& event) const {
  event.rows.assign(static_cast<size_t>(exchange_.ranks()), 0);
  const int32_t* id = result.routing.ids.data<int32_t>();
  for (int32_t pair : pairs) ++event.rows[static_cast<size_t>(exchange_.owner(id[pair]))];
}

ScheduledExperts::Result& ScheduledExperts::launch(int layer, const nn::TokenView& view,
                                                   const Tensor& tokens, ops::Routing routing,
                                                   const nn::ExpertBank& bank, ExpertEvent& event) {
  Result& result = layers_[static_cast<size_t>(layer)].results[step_.index];
  result.routing = std::move(routing);
  const std::vector<int32_t> pairs = choose(layer, view, tokens, result, event);
  count(pairs, result, event);
  event.sent = timetable_.consumed(step_.index, layer);
  if (event.sent)
    result.flight = exchange_.dispatch(layer, tokens, result.routing.ids, pairs, bank);
  return result;
}

void ScheduledExperts::compute(Result& result) {
  if (result.flight && !result.flight->computed) exchange_.compute(*result.flight);
  if (waiting_ == &result) waiting_ = nullptr;
}

void ScheduledExperts::let_others_work() {
  if (!travels_) return;
  peak_kept_ = std::max(peak_kept_, kept_bytes());
  travels_();
}

ScheduledExperts::Result& ScheduledExperts::bring_home(int layer, int source, const Tensor& like) {
  Result& result = layers_[static_cast<size_t>(layer)].results.at(source);
  if (result.rows.defined()) return result;
  if (!result.flight->computed) let_others_work();
  compute(result);
  let_others_work();
  const Tensor& ids = result.routing.ids;
  const Tensor rows = Tensor::empty({ids.elements(), like.size(1)}, like.dtype(), like.device(),
                                    tensor::MemoryClass::buffers);
  exchange_.finish(*result.flight, rows);
  if (!result.reused.empty()) {
    const Tensor old = bring_home(layer, source - 1, like).rows;
    ops::move_rows(old, result.reused.from, rows, result.reused.to);
  }
  std::vector<int32_t> empty;
  for (int64_t i = 0; i < ids.elements(); ++i)
    if (ids.data<int32_t>()[i] < 0) empty.push_back(static_cast<int32_t>(i));
  if (!empty.empty()) ops::move_rows(rows, std::vector<int32_t>(empty.size(), -1), rows, empty);
  if (timetable_.adaptive(layer)) result.drift.length = row_lengths(rows);
  result.rows = rows;
  result.flight.reset();
  return result;
}

// Keeps what a later step reads, or takes rows from.
void ScheduledExperts::forget(int layer) {
  auto& results = layers_[static_cast<size_t>(layer)].results;
  const int next = step_.index + 1;
  int lowest = next;
  if (next < timetable_.steps()) {
    lowest = next - timetable_.lag(next, layer);
    if (!timetable_.full(next, layer)) lowest = std::min(lowest, next - 1);
    if (!timetable_.forced(next))
      for (const auto& [source, result] : results)
        if (source >= lowest && !result.rows.defined() && !result.reused.empty())
          lowest = std::min(lowest, source - 1);
  }
  results.erase(results.begin(), results.lower_bound(lowest));
}

int64_t ScheduledExperts::kept_bytes() const {
  int64_t bytes = 0;
  for (const Layer& layer : layers_) {
    if (layer.tokens.defined()) bytes += layer.tokens.bytes();
    for (const auto& [source, result] : layer.results) {
      if (result.rows.defined()) bytes += result.rows.bytes();
      if (result.flight) bytes += result.flight->bytes();
    }
  }
  return bytes;
}

Tensor ScheduledExperts::apply(int site, const nn::TokenView& view, const Tensor& tokens,
                               const nn::Router& router, const nn::ExpertBank& bank) {
  const int layer = layer_of_site_.at(static_cast<size_t>(site)), step = step_.index;
  auto& results = layers_[static_cast<size_t>(layer)].results;
  if (timetable_.forced(step)) results.clear();
  const ops::Routing made = router(tokens);  // counts and choices are the host's
  ops::Routing routing{made.ids.to(tensor::Device::cpu), made.weights.to(tensor::Device::cpu)};
  ExpertEvent event{.step = step, .layer = layer, .tokens = tokens.size(0), .rows = {}};
  event.distinct = distinct(routing.ids, bank->routed.size());
  Result& mine = launch(layer, view, tokens, std::move(routing), bank, event);
  const Tensor shared = nn::shared_expert(tokens, *bank);
  // While these rows travel, the experts of rows that have arrived: of the layer before
  // (interweaved), or of the step before (displaced).
  if (waiting_ && waiting_ != &mine) compute(*waiting_);
  if (const auto before = results.find(step - 1); before != results.end()) compute(before->second);
  event.lag = timetable_.lag(step, layer);
  if (event.lag > 0 && mine.flight && plan_.schedule == ExpertSchedule::interweaved)
    waiting_ = &mine;
  const Result& read = bring_home(layer, step - event.lag, tokens);
  const bool latest = plan_.scores == StaleScores::latest;
  const Tensor& weights = latest ? mine.routing.weights : read.routing.weights;
  const Tensor out = ops::combine_rows(read.rows, weights.to(tokens.device()), shared);
  if (!read.sources.empty())
    event.oldest = step - *std::min_element(read.sources.begin(), read.sources.end());
  events_.push_back(std::move(event));
  forget(layer);
  peak_kept_ = std::max(peak_kept_, kept_bytes());
  return out;
}

void ScheduledExperts::finish() {
  waiting_ = nullptr;
  for (Layer& layer : layers_) layer = Layer{};
}

}  // namespace tessera::parallel

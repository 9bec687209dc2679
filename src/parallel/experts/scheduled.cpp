#include "parallel/experts/scheduled.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/fail.h"
#include "nn/local.h"
#include "ops/experts.h"
#include "tensor/scope.h"

namespace tessera::parallel {

using tensor::DType;
using tensor::Tensor;

namespace {

std::byte* row_of(const Tensor& rows, int64_t i) {
  return static_cast<std::byte*>(rows.raw()) + i * rows.size(1) * tensor::size_of(rows.dtype());
}

int64_t distinct(const Tensor& ids, size_t experts) {
  std::vector<bool> touched(experts);
  for (int64_t i = 0; i < ids.elements(); ++i)
    if (ids.data<int32_t>()[i] >= 0) touched[static_cast<size_t>(ids.data<int32_t>()[i])] = true;
  return std::count(touched.begin(), touched.end(), true);
}

}  // namespace

ScheduledExperts::ScheduledExperts(const nn::Geometry& geometry, const Plan& plan, int steps,
                                   ExpertExchange exchange,
                                   std::function<uint32_t(int, int64_t)> kept)
    : plan_(plan),
      timetable_(plan, static_cast<int>(geometry.experts.size()), steps),
      exchange_(std::move(exchange)),
      kept_(std::move(kept)),
      layer_of_site_(static_cast<size_t>(geometry.blocks), -1),
      layers_(geometry.experts.size()) {
  for (size_t l = 0; l < geometry.experts.size(); ++l)
    layer_of_site_.at(static_cast<size_t>(geometry.experts[l].block)) = static_cast<int>(l);
}

// Rows to send; the others are found in the result of the step before, by (token, expert).
std::vector<int32_t> ScheduledExperts::choose(int layer, const nn::TokenView& view, Result& result,
                                              ExpertEvent& event) const {
  const Tensor& ids = result.routing.ids;
  const int64_t k = ids.size(1);
  const int32_t* id = ids.data<int32_t>();
  std::vector<int32_t> pairs;
  result.sources.assign(static_cast<size_t>(ids.elements()), step_.index);
  const bool full = timetable_.full(step_.index, layer);
  const auto& results = layers_[static_cast<size_t>(layer)].results;
  const Result* before = full ? nullptr : &results.at(step_.index - 1);
  int64_t t = 0;
  for (const nn::Segment& segment : view.body)
    for (int64_t token = segment.ids.begin; token < segment.ids.end; ++token, ++t) {
      int64_t keep = 0;
      if (plan_.conditional == KeptSlot::high) keep = k - 1;
      if (plan_.conditional == KeptSlot::random) keep = kept_(segment.row, token) % k;
      for (int64_t j = 0; j < k; ++j) {
        const int64_t pair = t * k + j;
        if (id[pair] < 0) continue;
        if (!full && j != keep) {
          const int32_t* old = before->routing.ids.data<int32_t>() + t * k;
          const int64_t slot = std::find(old, old + k, id[pair]) - old;
          if (slot < k) {
            result.reused.insert(result.reused.end(), {pair, t * k + slot});
            result.sources[static_cast<size_t>(pair)] =
                before->sources[static_cast<size_t>(t * k + slot)];
            continue;
          }
          ++event.changed;
        }
        pairs.push_back(static_cast<int32_t>(pair));
      }
    }
  return pairs;
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
  const std::vector<int32_t> pairs = choose(layer, view, result, event);
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

ScheduledExperts::Result& ScheduledExperts::bring_home(int layer, int source, const Tensor& like) {
  Result& result = layers_[static_cast<size_t>(layer)].results.at(source);
  if (result.rows.defined()) return result;
  compute(result);
  const std::vector<Tensor> parts = exchange_.finish(*result.flight);
  const ExpertFlight& flight = *result.flight;
  Tensor rows = Tensor::empty({result.routing.ids.elements(), like.size(1)}, like.dtype(),
                              like.device(), tensor::MemoryClass::buffers);
  const auto bytes = static_cast<size_t>(like.size(1) * tensor::size_of(like.dtype()));
  for (size_t r = 0; r < parts.size(); ++r)
    tensor::parallel_for(parts[r].size(0), 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        std::memcpy(row_of(rows, flight.pairs[static_cast<size_t>(flight.begin[r] + i)]),
                    row_of(parts[r], i), bytes);
    });
  if (!result.reused.empty()) {
    const Tensor old = bring_home(layer, source - 1, like).rows;
    for (size_t i = 0; i < result.reused.size(); i += 2)
      std::memcpy(row_of(rows, result.reused[i]), row_of(old, result.reused[i + 1]), bytes);
  }
  const int32_t* id = result.routing.ids.data<int32_t>();
  for (int64_t i = 0; i < rows.size(0); ++i)
    if (id[i] < 0) std::memset(row_of(rows, i), 0, bytes);
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
  for (const Layer& layer : layers_)
    for (const auto& [source, result] : layer.results) {
      if (result.rows.defined()) bytes += result.rows.bytes();
      if (result.flight) bytes += result.flight->bytes();
    }
  return bytes;
}

Tensor ScheduledExperts::apply(int site, const nn::TokenView& view, const Tensor& tokens,
                               const nn::Router& router, const nn::ExpertBank& bank) {
  const int layer = layer_of_site_.at(static_cast<size_t>(site)), step = step_.index;
  auto& results = layers_[static_cast<size_t>(layer)].results;
  if (timetable_.forced(step)) results.clear();
  ops::Routing routing = router(tokens);
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
  const Tensor out =
      ops::combine_rows(read.rows, latest ? mine.routing.weights : read.routing.weights, shared);
  if (!read.sources.empty())
    event.oldest = step - *std::min_element(read.sources.begin(), read.sources.end());
  events_.push_back(std::move(event));
  forget(layer);
  peak_kept_ = std::max(peak_kept_, kept_bytes());
  return out;
}

void ScheduledExperts::finish() {
  waiting_ = nullptr;
  for (Layer& layer : layers_) layer.results.clear();
}

}  // namespace tessera::parallel

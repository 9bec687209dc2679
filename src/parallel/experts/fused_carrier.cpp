#include "parallel/experts/fused_carrier.h"

#include <algorithm>
#include <cstring>

#include "tensor/device_pool.h"

namespace tessera::parallel {
namespace {

using tensor::Tensor;

// The ids of these assignments; -1 elsewhere.
Tensor only(const Tensor& ids, const std::vector<int32_t>& assignments) {
  const Tensor subset = Tensor::empty(ids.shape(), ids.dtype());
  std::fill_n(subset.data<int32_t>(), subset.elements(), -1);
  for (const int32_t a : assignments) subset.data<int32_t>()[a] = ids.data<int32_t>()[a];
  return subset;
}

}  // namespace

ExpertFlight FusedCarrier::dispatch(int site, const Tensor& tokens, const Tensor& ids,
                                    const std::vector<int32_t>& assignments,
                                    nn::ExpertWeights weights) {
  if (tensor::is_gpu(tokens.device())) return launched(site, tokens, ids, assignments, weights);
  if (!lanes_)
    lanes_ = std::make_unique<FusedLanes>(
        group_, size_, tokens, kLanes, size_.tokens,
        size_.on_gpu  ? fused::kDeviceWindow / kLanes
        : window_ > 0 ? window_
                      : FusedLanes::usual_window(size_, group_.size(), tokens));
  ExpertFlight flight;
  flight.site = site;
  flight.turn = turns_++;
  const int lane = lane_of(flight.turn);
  settle(lane);
  flight.rows = Tensor::empty({ids.elements(), tokens.size(1)}, tokens.dtype(), tokens.device(),
                              tensor::MemoryClass::buffers);
  layer(lane) = {true, false, flight.turn, site, std::move(weights), flight.rows, {}, {}};
  fused::MoeOperator& op = lanes_->at(lane);
  const auto route = [subset = only(ids, assignments)](const Tensor&) {
    return ops::Routing{subset, Tensor::zeros(subset.shape(), tensor::DType::f32)};
  };
  const fused::Destination into{flight.rows, {}, false};
  if (tokens.is_meta()) {
    (void)op.dry_run(tokens, route, layer(lane).weights, into);
    layer(lane).dispatch = lanes_->start_dry_run(lane, site);
  } else {
    op.begin(tokens, route, layer(lane).weights, into);
    lanes_->drive([&] { return op.departed(); });
  }
  return flight;
}

ExpertFlight FusedCarrier::launched(int site, const Tensor& tokens, const Tensor& ids,
                                    const std::vector<int32_t>& assignments,
                                    const nn::ExpertWeights& weights) {
  if (!launches_) launches_ = std::make_unique<SharedLaunches>(group_, size_);
  ExpertFlight flight;
  flight.site = site;
  flight.computed = true;
  flight.rows = Tensor::zeros({ids.elements(), tokens.size(1)}, tokens.dtype(), tokens.device(),
                              tensor::MemoryClass::buffers);
  const Tensor subset = only(ids, assignments);
  launches_->run(site, {tokens, subset.to(tokens.device()), {}, {}, flight.rows, {}, weights});
  const int64_t coming = launches_->count(site, subset, weights, tokens).coming;
  most_coming_ = std::max(most_coming_, coming);
  coming_bound_ = std::max(coming_bound_, launches_->coming_bound(tokens));
  return flight;
}

void FusedCarrier::serve(int lane) {
  Layer& current = layer(lane);
  if (!current.under_way || current.served) return;
  current.served = true;
  const fused::MoeOperator& op = lanes_->at(lane);
  int64_t rows = 0;
  double touched_experts = 0;
  if (current.rows.is_meta()) {
    rows = lanes_->fetch(current.dispatch, current.site, current.combine);
    touched_experts = lanes_->assumed_touched(rows);
  } else {
    lanes_->drive([&] { return op.served(); });
    rows = lanes_->note_transfers(lane, current.site);
    touched_experts = static_cast<double>(lanes_->touched(lane, lane + 1));
    const int64_t coming = lanes_->coming(lane);
    most_coming_ = std::max(most_coming_, coming + coming_before_);  // both may be under way
    coming_before_ = coming;
    coming_bound_ = lanes_->coming_bound();
  }
  lanes_->note_products(current.weights, current.rows, rows, touched_experts);
}

// Results of the lane's layer are here, and no rank waits for this one.
void FusedCarrier::settle(int lane) {
  Layer& current = layer(lane);
  if (!current.under_way) return;
  serve(lane);
  fused::MoeOperator& op = lanes_->at(lane);
  if (current.rows.is_meta())
    lanes_->end_dry_run(current.combine);
  else
    lanes_->drive([&] { return op.done(); });
  op.forget();
  current = {};
}

void FusedCarrier::compute(ExpertFlight& flight, bool) {
  const int lane = lane_of(flight.turn);
  if (layer(lane).under_way && layer(lane).turn == flight.turn) serve(lane);
  flight.computed = true;
}

Tensor FusedCarrier::bring(ExpertFlight& flight, const Tensor& ids, const Tensor&) {
  const int lane = lane_of(flight.turn);
  if (layer(lane).under_way && layer(lane).turn == flight.turn) settle(lane);
  const Tensor rows = flight.rows;
  if (tensor::is_gpu(rows.device())) return rows;
  const int64_t bytes = rows.size(1) * size_of(rows.dtype());
  for (int64_t a = 0; !rows.is_meta() && a < ids.elements(); ++a)
    if (ids.data<int32_t>()[a] < 0)
      std::memset(static_cast<std::byte*>(rows.raw()) + a * bytes, 0, static_cast<size_t>(bytes));
  return rows;
}

void FusedCarrier::note(nn::MoeLog& log) const {
  if (most_coming_ > 0) log.expect(most_coming_, coming_bound_);
}

void FusedCarrier::finish() {
  for (int lane = 0; lane < kLanes; ++lane) settle(lane);
}

}  // namespace tessera::parallel

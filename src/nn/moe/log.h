#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "nn/moe/policy.h"

namespace tessera::nn {

/// Routing, traffic and reads of a call of an MoE layer.
struct MoeEvent {
  int step = 0, site = 0;
  int64_t tokens = 0, distinct = 0;  ///< experts with at least one of these tokens
  std::vector<int64_t> assignments;  ///< (token, slot), by computing rank
  bool sent = true;                  ///< false: no step reads the results, so they stay
  int64_t changed = 0;               ///< sent in spite of a left-out slot
  int lag = 0, oldest = 0;           ///< age of the result read, and of its oldest row
};

/// A call as shown to observers, before its results are combined.
struct MoeWork {
  const MoeCall& call;
  const Tensor& tokens;
  const Gate& gate;
  const ExpertWeights& weights;
  const ops::Routing& routing;  ///< the gate's result, on any device
  const Tensor& rows;           ///< [tokens * k, hidden]: the experts' results to combine
};

/// The calls of the MoE layers of one request on one rank.
class MoeLog {
 public:
  /// Calls `observer` in every later call. Its captures must outlive the calls.
  void watch(std::function<void(const MoeWork&)> observer) {
    observers_.push_back(std::move(observer));
  }
  bool watched() const { return !observers_.empty(); }
  void show(const MoeWork& work) const {
    for (const auto& observer : observers_) observer(work);
  }

  /// Adds a complete event.
  void add(MoeEvent event) { events_.push_back(std::move(event)); }
  /// A call with routed experts on this rank; counted later, so no layer waits for a
  /// device.
  void add(const MoeCall& call, const Tensor& ids, int64_t experts);
  /// The recorded calls (tensor::Recording) ran again, in this step.
  void replayed(int step);
  /// Notes the choice of a call that adds a complete event; `ids` are on the host.
  void chose(const Tensor& ids, int64_t experts);
  /// Assignments to each expert, over all layers and calls; empty on meta.
  const std::vector<int64_t>& load() const;
  /// Every call since the start, in order.
  const std::vector<MoeEvent>& events() const;

  /// Bytes of rows kept from a call to the next, or during other work.
  void keep(int64_t bytes) { peak_kept_ = std::max(peak_kept_, bytes); }
  int64_t peak_kept_bytes() const { return peak_kept_; }

  /// Bytes of rows under way to this rank at once in a call, and their bound for any
  /// routing.
  void expect(int64_t bytes, int64_t bound) {
    most_coming_ = std::max(most_coming_, bytes);
    coming_bound_ = std::max(coming_bound_, bound);
  }
  int64_t most_coming() const { return most_coming_; }
  int64_t coming_bound() const { return coming_bound_; }

 private:
  void settle() const;
  void count(const Tensor& ids, MoeEvent& event) const;
  void count_later(const MoeEvent& event, const Tensor& ids);
  std::vector<std::function<void(const MoeWork&)>> observers_;
  mutable std::vector<MoeEvent> events_;
  mutable std::vector<std::pair<size_t, Tensor>> uncounted_;  // ids, by event
  mutable std::vector<int64_t> load_;
  std::vector<std::pair<MoeEvent, Tensor>> recorded_;
  int64_t peak_kept_ = 0, most_coming_ = 0, coming_bound_ = 0;
};

}  // namespace tessera::nn

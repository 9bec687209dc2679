#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "nn/moe/policy.h"

namespace tessera::nn {

/// What one call of an MoE layer routed, sent and read.
struct MoeEvent {
  int step = 0, site = 0;
  int64_t tokens = 0, distinct = 0;  ///< experts with at least one of these tokens
  std::vector<int64_t> assignments;  ///< (token, slot), by the rank that computes them
  bool sent = true;                  ///< false: no step would read them, so they stay at home
  int64_t changed = 0;               ///< sent although their slot was to be left out
  int lag = 0, oldest = 0;           ///< age of the result that was read, and of its oldest row
};

/// A call as its observers see it, when its result is about to be put together.
struct MoeWork {
  const MoeCall& call;
  const Tensor& tokens;
  const Gate& gate;
  const ExpertWeights& weights;
  const ops::Routing& routing;  ///< what the gate gave, wherever the backend keeps it
  const Tensor& rows;           ///< [tokens * k, hidden]: the experts' results that are combined
};

/// The calls of the MoE layers of one request on one rank.
class MoeLog {
 public:
  /// Calls `observer` in every call from now on. What it refers to outlives the calls.
  void watch(std::function<void(const MoeWork&)> observer) {
    observers_.push_back(std::move(observer));
  }
  bool watched() const { return !observers_.empty(); }
  void show(const MoeWork& work) const {
    for (const auto& observer : observers_) observer(work);
  }

  /// An event that is complete.
  void add(MoeEvent event) { events_.push_back(std::move(event)); }
  /// A call whose routed experts this rank computes itself; it is counted later, so that no layer
  /// waits for a device.
  void add(const MoeCall& call, const Tensor& ids, int64_t experts);
  /// The calls that were recorded (tensor::Recording) have been made once more, in this step.
  void replayed(int step);
  /// Every call since the start, in order.
  const std::vector<MoeEvent>& events() const;

  /// Bytes of rows that are kept from one call to the next, or while others work.
  void keep(int64_t bytes) { peak_kept_ = std::max(peak_kept_, bytes); }
  int64_t peak_kept_bytes() const { return peak_kept_; }

  /// Bytes of rows that can have been on their way to this rank at once in a call, and how many can
  /// ever be, however tokens are routed.
  void expect(int64_t bytes, int64_t bound) {
    most_coming_ = std::max(most_coming_, bytes);
    coming_bound_ = std::max(coming_bound_, bound);
  }
  int64_t most_coming() const { return most_coming_; }
  int64_t coming_bound() const { return coming_bound_; }

 private:
  void settle() const;
  void count_later(const MoeEvent& event, const Tensor& ids);
  std::vector<std::function<void(const MoeWork&)>> observers_;
  mutable std::vector<MoeEvent> events_;
  mutable std::vector<std::pair<size_t, Tensor>> uncounted_;  // ids, by event
  std::vector<std::pair<MoeEvent, Tensor>> recorded_;
  int64_t peak_kept_ = 0, most_coming_ = 0, coming_bound_ = 0;
};

}  // namespace tessera::nn

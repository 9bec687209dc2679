#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tensor/storage.h"

namespace tessera::pipeline {

/// Who counts what a rank holds: the rank, if it is one of several, and the request.
using Trackers = std::vector<std::shared_ptr<tensor::MemoryTracker>>;

/// Networks that are loaded, by rank, all of one variant; requests that use one hold it.
/// Thread-safe.
template <class Network>
class Loaded {
 public:
  /// The network of a rank; `make` builds it where it is not there. Those of another variant are
  /// let go afterwards: the store shares the weights that both have. `memory`
  /// counts the weights: what builds counts there, and one that was there while it is held.
  template <class Make>
  std::shared_ptr<const Network> get(int64_t variant, int rank, const Trackers& memory,
                                     const Make& make) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = all_.find(rank);
      if (variant == variant_ && found != all_.end()) return counted(found->second, memory);
    }
    const std::vector<int64_t> before = weights_in(memory);
    Held made{make(), weights_in(memory)};
    for (size_t i = 0; i < before.size(); ++i) made.bytes[i] -= before[i];
    const std::lock_guard lock(mutex_);
    if (variant != variant_) all_.clear();
    variant_ = variant;
    return all_.emplace(rank, std::move(made)).first->second.network;
  }
  /// Lets go of those of other variants.
  void keep_only(int64_t variant) {
    const std::lock_guard lock(mutex_);
    if (variant != variant_) all_.clear();
  }
  void release() {
    const std::lock_guard lock(mutex_);
    all_.clear();
  }

 private:
  struct Held {
    std::shared_ptr<const Network> network;
    std::vector<int64_t> bytes;  ///< that building it added to each tracker
  };
  static std::vector<int64_t> weights_in(const Trackers& memory) {
    std::vector<int64_t> bytes;
    for (const auto& tracker : memory)
      bytes.push_back(tracker->current(tensor::MemoryClass::weights));
    return bytes;
  }
  static void count(const Held& held, const Trackers& memory, int sign) {
    for (size_t i = 0; i < std::min(memory.size(), held.bytes.size()); ++i)
      memory[i]->add_shared(tensor::MemoryClass::weights, sign * held.bytes[i]);
  }
  static std::shared_ptr<const Network> counted(const Held& held, const Trackers& memory) {
    count(held, memory, 1);
    return {held.network.get(), [held, memory](const Network*) { count(held, memory, -1); }};
  }

  std::mutex mutex_;
  int64_t variant_ = 0;
  std::map<int, Held> all_;
};

}  // namespace tessera::pipeline

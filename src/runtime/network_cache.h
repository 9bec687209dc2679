#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <utility>

#include "tensor/scope.h"

namespace tessera::runtime {

/// Cache of loaded networks, by rank, all of the same variant. Requests hold references.
/// Thread-safe.
template <class Network>
class NetworkCache {
 public:
  using Tracker = std::shared_ptr<tensor::MemoryTracker>;

  /// The network of a rank; `make` builds a missing network. Networks of another variant are
  /// released after the build, so that the store can share weights of both. While a network is
  /// held, its bytes count in the current scope, once for all ranks, and in the memory of each rank
  /// with a reference; both trackers may be null.
  template <class Make>
  std::shared_ptr<const Network> get(int64_t variant, int rank, const Tracker& rank_memory,
                                     const Make& make) {
    const Tracker& request = tensor::current_scope().memory;
    {
      const std::lock_guard lock(mutex_);
      const auto it = all_.find(rank);
      if (variant == variant_ && it != all_.end()) return counted(it->second, request, rank_memory);
    }
    Slot slot = built(make);
    const std::lock_guard lock(mutex_);
    if (variant != variant_) all_.clear();
    variant_ = variant;
    const auto [at, inserted] = all_.emplace(rank, std::move(slot));
    if (!inserted) {
      slot = {};  // would count beside the existing network
      return counted(at->second, request, rank_memory);
    }
    const auto built_for = std::make_shared<Counting>(Bytes{}, request);
    at->second.requests[request.get()] = built_for;
    return counted(at->second, request, rank_memory);
  }
  /// Releases networks of other variants.
  void keep_only(int64_t variant) {
    const std::lock_guard lock(mutex_);
    if (variant != variant_) all_.clear();
  }
  void release() {
    const std::lock_guard lock(mutex_);
    all_.clear();
  }
  /// Bytes of all networks in the cache.
  int64_t bytes() const {
    const std::lock_guard lock(mutex_);
    int64_t sum = 0;
    for (const auto& [rank, slot] : all_)
      sum = std::accumulate(slot.added.begin(), slot.added.end(), sum);
    return sum;
  }

 private:
  using Bytes = std::array<int64_t, tensor::kMemoryClasses>;
  /// Counts bytes in a tracker until destruction.
  struct Counting {
    Counting(const Bytes& held_bytes, Tracker where) : bytes(held_bytes), memory(std::move(where)) {
      count(1);
    }
    Counting(const Counting&) = delete;
    Counting& operator=(const Counting&) = delete;
    ~Counting() { count(-1); }
    void count(int sign) const {
      for (size_t i = 0; memory && i < bytes.size(); ++i)
        memory->add_shared(static_cast<tensor::MemoryClass>(i), sign * bytes[i]);
    }
    const Bytes bytes;
    const Tracker memory;
  };
  struct Slot {
    std::shared_ptr<const Network> network;
    Bytes added{};  ///< bytes that building added to the process
    Bytes whole{};  ///< includes bytes that the process held already
    std::map<const tensor::MemoryTracker*, std::weak_ptr<const Counting>> requests{};
  };
  static Bytes bytes_in(const tensor::MemoryTracker& memory) {
    Bytes bytes;
    for (size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = memory.current(static_cast<tensor::MemoryClass>(i));
    return bytes;
  }
  template <class Make>
  static Slot built(const Make& make) {
    tensor::Scope counting = tensor::current_scope();
    const Tracker sum = std::make_shared<tensor::MemoryTracker>(counting.memory);
    counting.memory = std::make_shared<tensor::MemoryTracker>(sum);
    const tensor::BindScope bind(counting);
    Slot slot{make()};
    slot.added = bytes_in(*sum);
    slot.whole = bytes_in(*counting.memory);
    return slot;
  }
  static std::shared_ptr<const Network> counted(Slot& slot, const Tracker& request,
                                                const Tracker& rank) {
    std::erase_if(slot.requests, [](const auto& entry) { return entry.second.expired(); });
    auto& request_entry = slot.requests[request.get()];
    std::shared_ptr<const Counting> shared_count = request_entry.lock();
    if (!shared_count)
      request_entry = shared_count = std::make_shared<Counting>(slot.added, request);
    auto rank_counting = std::make_shared<Counting>(slot.whole, rank);
    return {slot.network.get(), [network = slot.network, shared_count,
                                 rank_counting](const Network*) mutable { network.reset(); }};
  }

  mutable std::mutex mutex_;
  int64_t variant_ = 0;
  std::map<int, Slot> all_;
};

}  // namespace tessera::runtime

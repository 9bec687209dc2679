#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "tensor/scope.h"

namespace tessera::pipeline {

/// Networks that are loaded, by rank, all of one variant; requests that use one hold it.
/// Thread-safe.
template <class Network>
class Loaded {
 public:
  using Tracker = std::shared_ptr<tensor::MemoryTracker>;

  /// The network of a rank; `make` builds it where it is not there. Those of another variant are
  /// let go afterwards: the store shares the weights that both have. While it is held, it counts
  /// where the scope counts, and as memory of the rank that computes with it; either may be null.
  template <class Make>
  std::shared_ptr<const Network> get(int64_t variant, int rank, const Tracker& rank_memory,
                                     const Make& make) {
    const Tracker& request = tensor::current_scope().memory;
    {
      const std::lock_guard lock(mutex_);
      const auto found = all_.find(rank);
      if (variant == variant_ && found != all_.end())
        return counted(found->second, request, rank_memory);
    }
    Held made = built(make);
    const std::lock_guard lock(mutex_);
    if (variant != variant_) all_.clear();
    variant_ = variant;
    const auto [at, mine] = all_.emplace(rank, std::move(made));
    return counted(at->second, mine ? nullptr : request, rank_memory);
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
  using Bytes = std::array<int64_t, tensor::kMemoryClasses>;
  struct Held {
    std::shared_ptr<const Network> network;
    Bytes added{};  ///< by building it, to what counted then
    Bytes whole{};  ///< with what others of the process held already
  };
  static Bytes bytes_in(const tensor::MemoryTracker& memory) {
    Bytes bytes;
    for (size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = memory.current(static_cast<tensor::MemoryClass>(i));
    return bytes;
  }
  template <class Make>
  static Held built(const Make& make) {
    tensor::Scope counting = tensor::current_scope();
    const Tracker sum = std::make_shared<tensor::MemoryTracker>(counting.memory);
    counting.memory = std::make_shared<tensor::MemoryTracker>(sum);
    const tensor::BindScope bind(counting);
    Held made{make()};
    made.added = bytes_in(*sum);
    made.whole = bytes_in(*counting.memory);
    return made;
  }
  static void count(const Bytes& bytes, const Tracker& memory, int sign) {
    for (size_t i = 0; memory && i < bytes.size(); ++i)
      memory->add_shared(static_cast<tensor::MemoryClass>(i), sign * bytes[i]);
  }
  static std::shared_ptr<const Network> counted(const Held& held, const Tracker& request,
                                                const Tracker& rank) {
    count(held.added, request, 1);
    count(held.whole, rank, 1);
    return {held.network.get(), [held, request, rank](const Network*) {
              count(held.added, request, -1);
              count(held.whole, rank, -1);
            }};
  }

  std::mutex mutex_;
  int64_t variant_ = 0;
  std::map<int, Held> all_;
};

}  // namespace tessera::pipeline

#pragma once

#include <map>
#include <memory>
#include <mutex>

namespace tessera::pipeline {

/// Networks that are loaded, by rank, all of one variant; requests that use one hold it.
/// Thread-safe.
template <class Network>
class Loaded {
 public:
  /// The network of a rank; `make` builds it where it is not there. Those of another variant are
  /// let go afterwards: the store shares the weights that both have.
  template <class Make>
  std::shared_ptr<const Network> get(int64_t variant, int rank, const Make& make) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = all_.find(rank);
      if (variant == variant_ && found != all_.end()) return found->second;
    }
    std::shared_ptr<const Network> made = make();
    const std::lock_guard lock(mutex_);
    if (variant != variant_) all_.clear();
    variant_ = variant;
    return all_.emplace(rank, std::move(made)).first->second;
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
  std::mutex mutex_;
  int64_t variant_ = 0;
  std::map<int, std::shared_ptr<const Network>> all_;
};

}  // namespace tessera::pipeline

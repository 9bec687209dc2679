#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace tessera::runtime {

/// A bounded memo of results about an open model, by key. Thread-safe.
template <class Key, class Value>
class Memo {
 public:
  static constexpr size_t kMost = 256;

  std::optional<Value> find(const Key& key) const {
    const std::lock_guard lock(mutex_);
    const auto it = all_.find(key);
    return it == all_.end() ? std::nullopt : std::optional(it->second);
  }
  void keep(const Key& key, Value value) const {
    const std::lock_guard lock(mutex_);
    if (all_.size() == kMost) all_.clear();
    all_.insert_or_assign(key, std::move(value));
  }
  /// Results of `make` are kept; exceptions are not.
  template <class Make>
  Value of(const Key& key, const Make& make) const {
    if (auto memo = find(key)) return *std::move(memo);
    Value value = make();
    keep(key, value);
    return value;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::map<Key, Value> all_;
};

}  // namespace tessera::runtime

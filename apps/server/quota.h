#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>

namespace tessera::server {

/// A limited amount of a resource (bytes, files, streams), with a maximum share for each client.
/// Thread-safe.
class Quota {
 public:
  Quota(size_t all, size_t share) : all_(all), share_(share) {}
  /// Takes `amount` for a client; false if refused. If nothing is held by anybody, any amount is
  /// granted.
  bool take(const std::string& client, size_t amount);
  void give_back(const std::string& client, size_t amount);
  size_t used() const;
  size_t used_by(const std::string& client) const;
  size_t all() const { return all_; }

 private:
  const size_t all_, share_;
  mutable std::mutex mutex_;
  size_t used_ = 0;
  std::map<std::string, size_t> by_client_;
};

/// A held part of a Quota, released by the destructor.
class QuotaLease {
 public:
  QuotaLease() = default;
  /// Takes the amount; empty if refused.
  QuotaLease(Quota& quota, const std::string& client, size_t amount);
  QuotaLease(QuotaLease&& other) noexcept { *this = std::move(other); }
  QuotaLease& operator=(QuotaLease&& other) noexcept;
  ~QuotaLease() { release(); }
  void release();
  explicit operator bool() const { return quota_ != nullptr; }

 private:
  Quota* quota_ = nullptr;
  std::string client_;
  size_t amount_ = 0;
};

}  // namespace tessera::server

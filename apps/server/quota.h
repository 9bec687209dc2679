#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>

namespace tessera::server {

/// A limited amount of something (bytes, files, streams) and who holds it: a client has a share at
/// most, so that some is left for others. From any thread.
class Quota {
 public:
  Quota(size_t all, size_t share) : all_(all), share_(share) {}
  /// Whether the client got `amount` more. A client who holds nothing gets it whenever nobody else
  /// holds anything, however much it is.
  bool take(const std::string& client, size_t amount);
  void give_back(const std::string& client, size_t amount);
  size_t taken() const;
  size_t taken_by(const std::string& client) const;
  size_t all() const { return all_; }

 private:
  const size_t all_, share_;
  mutable std::mutex mutex_;
  size_t taken_ = 0;
  std::map<std::string, size_t> by_client_;
};

/// A part of Quota, given back at its end.
class Held {
 public:
  Held() = default;
  /// Takes it; empty where it was refused.
  Held(Quota& quota, const std::string& client, size_t amount);
  Held(Held&& other) noexcept { *this = std::move(other); }
  Held& operator=(Held&& other) noexcept;
  ~Held() { release(); }
  void release();
  explicit operator bool() const { return quota_ != nullptr; }

 private:
  Quota* quota_ = nullptr;
  std::string client_;
  size_t amount_ = 0;
};

}  // namespace tessera::server

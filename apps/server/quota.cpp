#include "server/quota.h"

#include <utility>

namespace tessera::server {

bool Quota::take(const std::string& client, size_t amount) {
  const std::lock_guard lock(mutex_);
  size_t& usage = by_client_[client];
  const bool fits = amount <= share_ && usage <= share_ - amount && used_ <= all_ - amount;
  if (fits || (used_ == 0 && usage == 0)) {
    usage += amount;
    used_ += amount;
    return true;
  }
  if (usage == 0) by_client_.erase(client);
  return false;
}

void Quota::give_back(const std::string& client, size_t amount) {
  const std::lock_guard lock(mutex_);
  const auto it = by_client_.find(client);
  if (it == by_client_.end()) return;
  it->second -= amount;
  used_ -= amount;
  if (it->second == 0) by_client_.erase(it);
}

size_t Quota::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

size_t Quota::used_by(const std::string& client) const {
  const std::lock_guard lock(mutex_);
  const auto it = by_client_.find(client);
  return it == by_client_.end() ? 0 : it->second;
}

QuotaLease::QuotaLease(Quota& quota, const std::string& client, size_t amount) {
  if (!quota.take(client, amount)) return;
  quota_ = &quota;
  client_ = client;
  amount_ = amount;
}

QuotaLease& QuotaLease::operator=(QuotaLease&& other) noexcept {
  if (this == &other) return *this;
  release();
  quota_ = std::exchange(other.quota_, nullptr);
  client_ = std::move(other.client_);
  amount_ = other.amount_;
  return *this;
}

void QuotaLease::release() {
  if (Quota* const quota = std::exchange(quota_, nullptr)) quota->give_back(client_, amount_);
}

}  // namespace tessera::server

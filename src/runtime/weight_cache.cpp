#include "runtime/weight_cache.h"

#include <utility>

namespace tessera::runtime {

// Frees the previous weights after the lock is released.
void WeightCache::keep(const std::string& part, std::shared_ptr<const void> weights,
                       int64_t bytes) {
  Part entry{std::move(weights), bytes};
  const std::lock_guard lock(mutex_);
  std::swap(parts_[part], entry);
}

std::shared_ptr<const void> WeightCache::find(const std::string& part) const {
  const std::lock_guard lock(mutex_);
  const auto it = parts_.find(part);
  return it == parts_.end() ? nullptr : it->second.weights;
}

void WeightCache::release() {
  std::map<std::string, Part> released;
  const std::lock_guard lock(mutex_);
  released.swap(parts_);
}

int64_t WeightCache::bytes() const { return bytes_with({}); }

int64_t WeightCache::bytes_with(const std::map<std::string, int64_t>& parts) const {
  int64_t sum = 0;
  for (const auto& [name, bytes] : parts) sum += bytes;
  const std::lock_guard lock(mutex_);
  for (const auto& [name, part] : parts_)
    if (!parts.contains(name)) sum += part.bytes;
  return sum;
}

}  // namespace tessera::runtime

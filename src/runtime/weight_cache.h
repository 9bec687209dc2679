#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace tessera::runtime {

/// Packed weights of text encoders and VAEs, kept between requests, by part. Thread-safe.
class WeightCache {
 public:
  /// Replaces the kept weights of the part once both exist: shared weights stay in memory.
  void keep(const std::string& part, std::shared_ptr<const void> weights, int64_t bytes);
  /// The kept weights of a part; null: none.
  std::shared_ptr<const void> find(const std::string& part) const;
  /// Releases all weights; users of a part keep their reference.
  void release();
  int64_t bytes() const;
  /// Bytes if `parts`, of these sizes, were kept too.
  int64_t bytes_with(const std::map<std::string, int64_t>& parts) const;

 private:
  struct Part {
    std::shared_ptr<const void> weights;
    int64_t bytes = 0;
  };
  mutable std::mutex mutex_;
  std::map<std::string, Part> parts_;
};

}  // namespace tessera::runtime

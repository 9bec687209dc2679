#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace tessera::runtime {

/// Packed weights of text encoders and VAEs that stay between requests, by part. Thread-safe.
class KeptParts {
 public:
  /// In place of what was kept of the part, once both are there: what they share stays.
  void keep(const std::string& part, std::shared_ptr<const void> weights, int64_t bytes);
  /// What is kept of a part; null: nothing.
  std::shared_ptr<const void> find(const std::string& part) const;
  /// Lets go of all; who uses some of it has it until then.
  void release();
  int64_t bytes() const;
  /// If these parts, of so many bytes, were kept too.
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

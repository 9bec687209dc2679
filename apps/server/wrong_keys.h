#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace tessera::server {

/// Rate limit for wrong keys, by address (IPv6: by /64 network): ten tries are answered at once,
/// then one every six seconds; answers to others are delayed. A right key never waits. Not
/// thread-safe.
class WrongKeys {
 public:
  /// Counts a wrong key at a time in seconds. Returns true if the answer must wait.
  bool count(const std::string& address, double now);
  size_t addresses() const { return all_.size(); }

 private:
  struct Tries {
    double remaining = 0, at = 0;
  };
  std::map<std::string, Tries> all_;
};

}  // namespace tessera::server

#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace tessera::server {

/// Who tries keys, by their addresses (of IPv6 by the network of 64 bits): ten wrong ones are
/// answered at once, and one more every six seconds; the answers to the others wait. A right key
/// never waits. Not locked.
class WrongKeys {
 public:
  /// Counts a wrong key at a time in seconds; whether its answer waits.
  bool count(const std::string& address, double now);
  size_t addresses() const { return all_.size(); }

 private:
  struct Tries {
    double left = 0, at = 0;
  };
  std::map<std::string, Tries> all_;
};

}  // namespace tessera::server

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace tessera::server {

/// A client's share of the server: queue places, concurrent runs and disk. A single client, or a
/// server without keys (0), has everything.
struct Shares {
  int clients = 0;
  int queue = 256, at_once = 2;
  int64_t disk = 0;  ///< bytes; 0: no limit

  bool shared() const { return clients > 1; }
  /// A client with fewer waiting jobs is never refused.
  size_t own_queue() const;
  /// Maximum waiting jobs of a client.
  size_t most_queue() const;
  /// True if a client with `own` of `all` waiting jobs may add another.
  bool may_wait(size_t own, size_t all) const;

  /// Maximum concurrent runs: above `at_once`, only a client without a run may begin.
  int most_runs() const;
  /// True if a client with `own` of `all` runs may begin another, with `others` of other clients. A
  /// second run needs the server to be otherwise idle.
  bool may_run(int own, int others, int all) const;

  /// Bytes of disk guaranteed to a client.
  int64_t own_disk() const { return shared() ? disk / clients : disk; }
};

/// Recent compute of each client, in seconds with a half-life of one minute.
class Recent {
 public:
  void add(const std::string& client, double seconds, double now);
  double of(const std::string& client, double now) const;

 private:
  struct Sum {
    double seconds = 0, at = 0;
  };
  std::map<std::string, Sum> all_;
};

}  // namespace tessera::server

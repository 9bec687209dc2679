#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace tessera::server {

/// What part of the server is a client's where others may ask, too: of the places to wait, of the
/// runs at once, and of the disk. One client, or none with a name (0), has all of it.
struct Shares {
  int clients = 0;
  int queue = 256, at_once = 2;
  int64_t disk = 0;  ///< bytes; 0: no limit

  bool shared() const { return clients > 1; }
  /// Of jobs that wait, a client with fewer than this is never sent away.
  size_t own_queue() const;
  /// Of jobs that wait, a client may have so many at most.
  size_t most_queue() const;
  /// Whether a client with `own` of `all` jobs that wait may add one.
  bool may_wait(size_t own, size_t all) const;

  /// Runs at once at most: beside `at_once` of them a client that has none begins its first.
  int most_runs() const;
  /// Whether a client with `own` of `all` runs, of which others have `others`, may begin one more:
  /// a second one only while nobody else has any.
  bool may_run(int own, int others, int all) const;

  /// Bytes that nobody takes from a client.
  int64_t own_disk() const { return shared() ? disk / clients : disk; }
};

/// What of the cores clients have had of late, in seconds of which half are forgotten in a minute.
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

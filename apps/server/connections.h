#pragma once

#include <sys/socket.h>

#include <chrono>
#include <map>
#include <mutex>
#include <string>

#include "server/quota.h"

namespace tessera::server {

/// The open connections of a listener: how many an address has, and until when the client of each
/// must have done its part. From any thread.
class Connections {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// `most` in all, three quarters of them from one address.
  explicit Connections(unsigned most) : by_address_(most, most - most / 4) {}

  /// Whether one more from this address may be taken.
  bool may_open(const sockaddr* address) const;
  void opened(int socket, const sockaddr* address);
  void closed(int socket);
  /// The client must have sent the rest of something by then; who closes its side has left.
  void expect(int socket, Time deadline) { set(socket, deadline, true); }
  /// The client must have read all of an answer by then.
  void serve(int socket, Time deadline) { set(socket, deadline, false); }
  /// Nothing is expected: an answer is made, or a stream is on its way.
  void rest(int socket) { set(socket, Time::max(), false); }
  /// Ends the connections of those that left, or are over their time.
  void end_late(Time now);

 private:
  struct Connection {
    Held place;
    Time deadline = Time::max();
    bool sends = false;
  };
  void set(int socket, Time deadline, bool sends);

  mutable std::mutex mutex_;
  mutable Quota by_address_;
  std::map<int, Connection> open_;
};

/// An address as it is counted: of IPv6 the network of 64 bits, which one client has whole.
std::string counted_address(const sockaddr* address);

}  // namespace tessera::server

#pragma once

#include <sys/socket.h>

#include <chrono>
#include <map>
#include <mutex>
#include <string>

#include "server/quota.h"

namespace tessera::server {

/// Open connections of a listener: the count of each address, and the deadline of each client.
/// Thread-safe.
class Connections {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// Allows `most` connections in all, and at most three quarters of them from the same address.
  explicit Connections(unsigned most) : by_address_(most, most - most / 4) {}

  /// True if another connection from this address may open.
  bool may_open(const sockaddr* address) const;
  void opened(int socket, const sockaddr* address);
  void closed(int socket);
  /// Sets the deadline for the rest of a request. Clients with a closed sending side have left.
  void expect(int socket, Time deadline) { set(socket, deadline, true); }
  /// Sets the deadline for reading a whole answer.
  void serve(int socket, Time deadline) { set(socket, deadline, false); }
  /// Clears the deadline while an answer is computed or streamed.
  void rest(int socket) { set(socket, Time::max(), false); }
  /// Closes connections of clients that left or missed their deadline.
  void end_late(Time now);

 private:
  struct Connection {
    QuotaLease place;
    Time deadline = Time::max();
    bool sends = false;
  };
  void set(int socket, Time deadline, bool sends);

  mutable std::mutex mutex_;
  mutable Quota by_address_;
  std::map<int, Connection> open_;
};

/// Key of an address for counting. IPv6 addresses count by /64 network, because a client usually
/// owns all of the network.
std::string counted_address(const sockaddr* address);

}  // namespace tessera::server

#include "server/connections.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>

#include "server/sockets.h"

namespace tessera::server {

std::string counted_address(const sockaddr* address) {
  if (!address || address->sa_family != AF_INET6) return address_of(address);
  in6_addr network = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  char text[INET6_ADDRSTRLEN] = "?";
  if (IN6_IS_ADDR_V4MAPPED(&network)) {
    inet_ntop(AF_INET, &network.s6_addr[12], text, sizeof text);
    return text;
  }
  std::memset(&network.s6_addr[8], 0, 8);
  inet_ntop(AF_INET6, &network, text, sizeof text);
  return text;
}

bool Connections::may_open(const sockaddr* address) const {
  return static_cast<bool>(QuotaLease(by_address_, counted_address(address), 1));
}

void Connections::opened(int socket, const sockaddr* address) {
  QuotaLease place(by_address_, counted_address(address), 1);
  const std::lock_guard lock(mutex_);
  open_[socket].place = std::move(place);
}

void Connections::closed(int socket) {
  const std::lock_guard lock(mutex_);
  open_.erase(socket);
}

void Connections::set(int socket, Time deadline, bool sends) {
  const std::lock_guard lock(mutex_);
  const auto it = open_.find(socket);
  if (it == open_.end()) return;
  it->second.deadline = deadline;
  it->second.sends = sends;
}

void Connections::end_late(Time now) {
  const std::lock_guard lock(mutex_);
  // libmicrohttpd misses a client that disconnects after half a request: the edge-triggered event
  // was already consumed.
  for (const auto& [socket, connection] : open_)
    if (connection.deadline <= now || (connection.sends && peer_closed(socket)))
      ::shutdown(socket, SHUT_RDWR);
}

}  // namespace tessera::server

#include "server/sockets.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tessera/error.h"

namespace tessera::server {

int listen_at(const std::string& host, int port) {
  const std::string address = host + ":" + std::to_string(port);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* addresses = nullptr;
  const int status = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &addresses);
  if (status != 0)
    throw Error(ErrorCode::usage,
                "--host '" + host + "': " + gai_strerror(status) + "; give an address");
  const int fd = ::socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int yes = 1;
  bool bound = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
               ::bind(fd, addresses->ai_addr, addresses->ai_addrlen) == 0 &&
               ::listen(fd, 1024) == 0;
  const std::string reason = std::strerror(errno);
  freeaddrinfo(addresses);
  if (bound) return fd;
  if (fd >= 0) ::close(fd);
  throw Error(ErrorCode::usage, "cannot listen at " + address + ": " + reason +
                                    "; choose another --port, or 0 for any");
}

int port_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

std::string address_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "?";
  if (address && address->sa_family == AF_INET)
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  if (address && address->sa_family == AF_INET6)
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text,
              sizeof text);
  return text;
}

bool peer_closed(int socket) {
  pollfd poll_entry{socket, POLLRDHUP, 0};
  return ::poll(&poll_entry, 1, 0) > 0 &&
         (poll_entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

unsigned raise_open_files() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  rlimit raised = limit;
  raised.rlim_cur = std::min<rlim_t>(limit.rlim_max, 65536);
  if (raised.rlim_cur > limit.rlim_cur && setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  return static_cast<unsigned>(std::min<rlim_t>(limit.rlim_cur, 65536));
}

}  // namespace tessera::server

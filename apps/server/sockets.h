#pragma once

#include <sys/socket.h>

#include <string>

namespace tessera::server {

/// Opens a listening socket at a host and port. Throws Error(usage) with the reason.
int listen_at(const std::string& host, int port);
/// The port of a socket.
int port_of(int socket);
/// "127.0.0.1", without the port.
std::string address_of(const sockaddr* address);
/// True if the peer closed the connection.
bool peer_closed(int socket);
/// Raises the limit of open files to the maximum and returns it.
unsigned raise_open_files();

}  // namespace tessera::server

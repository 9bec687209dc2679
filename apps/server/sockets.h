#pragma once

#include <sys/socket.h>

#include <string>

namespace tessera::server {

/// A socket that listens at a host and port. Throws Error(usage) saying why there is none.
int listen_at(const std::string& host, int port);
/// The port of a socket.
int port_of(int socket);
/// "127.0.0.1", without the port.
std::string address_of(const sockaddr* address);
/// Whether the other side has closed a connection.
bool left(int socket);
/// Raises the limit of open files as far as it goes; returns it.
unsigned raise_open_files();

}  // namespace tessera::server

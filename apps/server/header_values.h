#pragma once

#include <string>

namespace tessera::server {

/// In small letters: media types, schemes and names of hosts have no case.
std::string small(std::string text);
/// "application/json" of "Application/JSON ; charset=utf-8".
std::string media_type_of(const std::string& header);
/// The name in a Host header: "localhost" of "LocalHost.:8080", "[::1]" of "[::1]:8080"; "" where
/// it is no host and port.
std::string host_of(const std::string& header);
/// Whether a host is this machine alone: "localhost", 127.0.0.0/8 or ::1.
bool is_loopback(const std::string& host);
/// Whether an Origin is of the same host and port as a Host header.
bool same_origin(const std::string& origin, const std::string& host);
/// The credentials of an Authorization header with this scheme; else "".
std::string credentials_of(const std::string& header, const std::string& scheme);
/// The first of a list that proxies add to, such as X-Forwarded-Proto's; in small letters.
std::string first_of(const std::string& header);
/// Whether an If-None-Match header names this tag; a proxy that compresses makes a weak one of it.
bool names_tag(const std::string& header, const std::string& tag);

}  // namespace tessera::server

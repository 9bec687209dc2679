#pragma once

#include <string>

namespace tessera::server {

/// Lower case, because media types, schemes and host names ignore case.
std::string small(std::string text);
/// "application/json" of "Application/JSON ; charset=utf-8".
std::string media_type_of(const std::string& header);
/// Host name of a Host header: "localhost" of "LocalHost.:8080", "[::1]" of "[::1]:8080"; "" if
/// malformed.
std::string host_of(const std::string& header);
/// True for hosts of this machine only: "localhost", 127.0.0.0/8 or ::1.
bool is_loopback(const std::string& host);
/// True if an Origin has the host and port of a Host header.
bool same_origin(const std::string& origin, const std::string& host);
/// The credentials of an Authorization header with this scheme; else "".
std::string credentials_of(const std::string& header, const std::string& scheme);
/// First entry, in lower case, of a list that proxies append to, such as X-Forwarded-Proto.
std::string first_of(const std::string& header);
/// True if an If-None-Match header names this tag, also as a weak tag from a compressing proxy.
bool names_tag(const std::string& header, const std::string& tag);

}  // namespace tessera::server

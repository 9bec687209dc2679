#pragma once

#include <string>

namespace tessera::server {

/// SHA-256 (FIPS 180-4) of bytes, in hexadecimal.
std::string sha256(const std::string& bytes);

}  // namespace tessera::server

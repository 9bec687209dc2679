#pragma once

namespace tessera {
/// Version of the library: major.minor.patch.
inline constexpr const char* kVersion = "0.1.0";
}  // namespace tessera

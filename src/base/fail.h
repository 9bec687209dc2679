#pragma once

#include <fmt/format.h>

#include <utility>

#include "tessera/error.h"

namespace tessera {

/// Throws Error with a formatted message.
template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error with a formatted message unless `condition` holds.
template <class... Args>
void require(bool condition, ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tessera

#pragma once

#include <new>

#include "tessera/error.h"

namespace tessera::base {

/// Converts any exception to Error, for other ranks: std::bad_alloc becomes Error(memory), all
/// others Error(rank).
inline Error as_error(const std::exception& e) {
  if (const auto* const error = dynamic_cast<const Error*>(&e)) return *error;
  if (dynamic_cast<const std::bad_alloc*>(&e))
    return {ErrorCode::memory, "out of memory: use a smaller size, batch or model"};
  return {ErrorCode::rank, e.what()};
}

}  // namespace tessera::base

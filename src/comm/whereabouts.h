#pragma once

#include <cstdint>

namespace tessera::comm {

/// Where a rank runs.
struct Whereabouts {
  int64_t pid = 0;
  uint64_t machine = 0;  ///< equal for processes that see each other's process ids

  /// Of this process.
  static Whereabouts here();
};

}  // namespace tessera::comm

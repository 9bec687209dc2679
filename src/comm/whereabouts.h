#pragma once

#include <cstdint>

namespace tessera::comm {

/// The place of a rank.
struct Whereabouts {
  int64_t pid = 0;
  uint64_t machine = 0;  ///< equal for processes with visible process ids

  /// The place of this process.
  static Whereabouts here();
};

}  // namespace tessera::comm

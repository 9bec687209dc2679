#pragma once

#include "tensor/scope.h"

namespace tessera::tensor {

/// The counts that remain under an Uncounted: none, or work without memory.
enum class Counts : uint8_t { nothing, work };

/// Disables counting for work of this thread until destruction: `nothing` for sizes found on meta
/// (and without threads), `work` for bytes counted elsewhere.
class Uncounted {
 public:
  explicit Uncounted(Counts counts = Counts::nothing) : bind_(scope(counts)) {}

 private:
  static Scope scope(Counts counts) {
    if (counts == Counts::nothing) return {};
    Scope here = current_scope();
    here.memory = nullptr;
    return here;
  }
  BindScope bind_;
};

}  // namespace tessera::tensor

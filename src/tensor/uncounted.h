#pragma once

#include "tensor/scope.h"

namespace tessera::tensor {

/// What still counts while an Uncounted lives: nothing, or the work but no memory.
enum class Counts : uint8_t { nothing, work };

/// While it lives, what this thread makes and does counts for nobody: sizes that are looked up on
/// meta (`nothing`: without threads either), or bytes that another place counts (`work`).
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

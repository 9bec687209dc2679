#pragma once

#include "device/emulated_gpu.h"
#include "kernels/table.h"

namespace tessera::device {

/// The reference kernels over an arena: each opens it, and throws std::logic_error if one of its
/// arrays is not in there.
const kernels::KernelTable& emulated_table();
/// The arena that they work on; null: none.
void serve_kernels(Arena* arena);
/// Kernels since the arena was named.
int64_t kernels_run();

}  // namespace tessera::device

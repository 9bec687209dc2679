#pragma once

#include "device/emulated_gpu.h"
#include "kernels/table.h"

namespace tessera::device {

/// The reference kernels over an arena: each opens the arena, and throws std::logic_error for an
/// array outside.
const kernels::KernelTable& emulated_table();
/// Sets the arena of the kernels; null: none.
void serve_kernels(Arena* arena);
/// Kernels since the arena was set.
int64_t kernels_run();

}  // namespace tessera::device

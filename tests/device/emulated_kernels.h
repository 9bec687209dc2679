#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "device/emulated_gpu.h"
#include "kernels/table.h"

namespace tessera::device {

/// The reference kernels over an arena: each opens it, and throws std::logic_error if one of its
/// arrays is not in there.
const kernels::KernelTable& emulated_table();
/// The arena that they work on; null: none.
void serve_kernels(Arena* arena);
/// Work that was recorded: copies and kernels in order.
using Recorded = std::vector<std::function<void()>>;
/// A stream whose work is put down, not done.
void* start_recording();
/// What was put down since; the stream is gone.
std::shared_ptr<Recorded> stop_recording(void* stream);
/// Puts work down if its stream is recorded, else does it.
void do_or_record(void* stream, std::function<void()> work);
/// Kernels since the arena was named.
int64_t kernels_run();

}  // namespace tessera::device

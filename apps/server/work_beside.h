#pragma once

#include <chrono>
#include <functional>

namespace tessera::server {

/// Runs the work on another thread and calls `beat` on this thread at every interval. Throws the
/// work's error.
void work_beside(const std::function<void()>& work, std::chrono::milliseconds every,
                 const std::function<void()>& beat);

}  // namespace tessera::server

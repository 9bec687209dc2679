#pragma once

#include <chrono>
#include <functional>

namespace tessera::server {

/// Does the work on another thread, and calls `beat` on this one whenever so long has passed
/// meanwhile. Throws what the work throws.
void work_beside(const std::function<void()>& work, std::chrono::milliseconds every,
                 const std::function<void()>& beat);

}  // namespace tessera::server

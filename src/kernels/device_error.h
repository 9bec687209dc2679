#pragma once

#include <cstdint>

namespace tessera::kernels {

/// Throws Error(usage): a kernel for a device was asked for what it cannot do.
[[noreturn]] void unsupported(const char* kernel, const char* what, int64_t value,
                              const char* expected);
/// Throws Error(memory) or Error(usage): the device refused; `why` is its own message.
[[noreturn]] void device_failed(const char* kernel, const char* why, bool memory);

}  // namespace tessera::kernels

#pragma once

#include <cstdint>

namespace tessera::kernels {

/// Throws Error(usage): a device kernel does not support a value.
[[noreturn]] void unsupported(const char* kernel, const char* field, int64_t value,
                              const char* expected);
/// Throws Error(memory) or Error(usage) for a device error; `reason` is the device's message.
[[noreturn]] void device_failed(const char* kernel, const char* reason, bool memory);

}  // namespace tessera::kernels

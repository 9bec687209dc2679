#include "kernels/device_error.h"

#include "base/fail.h"

namespace tessera::kernels {

void unsupported(const char* kernel, const char* field, int64_t value, const char* expected) {
  fail(ErrorCode::usage, "{} on cuda: {} {}; expected {}; use `device` cpu for this model", kernel,
       field, value, expected);
}

void device_failed(const char* kernel, const char* reason, bool memory) {
  fail(memory ? ErrorCode::memory : ErrorCode::usage, "{} on cuda: {}; {}", kernel, reason,
       memory ? "use a smaller size, fewer rows or `device` cpu"
              : "check the driver with nvidia-smi, or use `device` cpu");
}

}  // namespace tessera::kernels

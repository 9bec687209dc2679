#include "kernels/device_error.h"

#include "base/fail.h"

namespace tessera::kernels {

void unsupported(const char* kernel, const char* what, int64_t value, const char* expected) {
  fail(ErrorCode::usage, "{} on cuda: {} {}; expected {}; use `device` cpu for this model", kernel,
       what, value, expected);
}

void device_failed(const char* kernel, const char* why, bool memory) {
  fail(memory ? ErrorCode::memory : ErrorCode::usage, "{} on cuda: {}; {}", kernel, why,
       memory ? "use a smaller size, fewer rows or `device` cpu"
              : "check the driver with nvidia-smi, or use `device` cpu");
}

}  // namespace tessera::kernels

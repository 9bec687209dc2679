#include "fused/device_layers.h"

#include <mutex>
#include <utility>

#include "base/fail.h"
#if defined(TESSERA_FUSED_CUDA)
#include "fused/cuda/operator.h"
#endif

namespace tessera::fused {
namespace {

std::mutex replacing;
OpenDeviceLayers replacement;  // under the mutex; tests set a replacement

std::unique_ptr<DeviceLayers> open_own([[maybe_unused]] const DeviceSize& size) {
#if defined(TESSERA_FUSED_CUDA)
  return std::make_unique<cuda::DeviceOperator>(size, cuda::DeviceOperator::Manner{});
#else
  fail(ErrorCode::usage,
       "moe=fused on a GPU: this program was built without CUDA; use moe=bulk, or `device` cpu");
#endif
}

}  // namespace

std::unique_ptr<DeviceLayers> open_device_layers(const DeviceSize& size) {
  OpenDeviceLayers open;
  {
    const std::lock_guard lock(replacing);
    open = replacement;
  }
  return open ? open(size) : open_own(size);
}

void replace_device_layers(OpenDeviceLayers open) {
  const std::lock_guard lock(replacing);
  replacement = std::move(open);
}

}  // namespace tessera::fused

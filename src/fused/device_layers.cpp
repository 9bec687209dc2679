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
DeviceLayersSource test_source;  // under the mutex

DeviceLayersSource replaced() {
  const std::lock_guard lock(replacing);
  return test_source;
}

#if defined(TESSERA_FUSED_CUDA)
// Turns of a wait beside other GPUs: their hosts launch at different times.
constexpr int64_t kPatience = int64_t{1} << 24;
#else
[[noreturn]] void refuse() {
  fail(ErrorCode::usage,
       "moe=fused on a GPU: this program was built without CUDA; use moe=bulk, or `device` cpu");
}
#endif

}  // namespace

std::unique_ptr<DeviceLayers> open_device_layers(const DeviceSize& size, const DevicePeers& peers) {
  if (const DeviceLayersSource test = replaced(); test.open) return test.open(size, peers);
#if defined(TESSERA_FUSED_CUDA)
  cuda::DeviceOperator::Manner manner;
  if (!peers.buffers.empty()) manner.patience = kPatience;
  return std::make_unique<cuda::DeviceOperator>(size, manner, peers);
#else
  refuse();
#endif
}

int64_t device_buffer_bytes(const DeviceSize& size) {
  if (const DeviceLayersSource test = replaced(); test.buffer_bytes) return test.buffer_bytes(size);
#if defined(TESSERA_FUSED_CUDA)
  return cuda::DeviceOperator::layout_of(size, {}).bytes();
#else
  refuse();
#endif
}

void replace_device_layers(DeviceLayersSource source) {
  const std::lock_guard lock(replacing);
  test_source = std::move(source);
}

}  // namespace tessera::fused

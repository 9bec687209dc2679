#include "tensor/device_runtime.h"

#include <mutex>
#include <utility>

#include "base/fail.h"
#include "tensor/device_pool.h"
#include "tensor/scope.h"

namespace tessera::tensor {
namespace {

struct InUse {
  std::mutex mutex;
  std::shared_ptr<DevicePool> pool;
};

InUse& in_use() {
  static InUse* const one = new InUse;  // outlives tensors in static storage
  return *one;
}

}  // namespace

void use_device(std::shared_ptr<DevicePool> pool) {
  const std::lock_guard lock(in_use().mutex);
  in_use().pool.swap(pool);
}

std::shared_ptr<DevicePool> device_pool() {
  const std::lock_guard lock(in_use().mutex);
  require(in_use().pool != nullptr, ErrorCode::usage,
          "no GPU is in use: name one with --device cuda");
  return in_use().pool;
}

bool has_device() {
  const std::lock_guard lock(in_use().mutex);
  return in_use().pool != nullptr;
}

void settle(Device device) {
  if (!is_gpu(device)) return;
  DeviceRuntime& runtime = device_pool()->runtime();
  runtime.enter();
  runtime.synchronise(current_scope().stream);
}

}  // namespace tessera::tensor

#include "ops/upload.h"

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/fail.h"
#include "tensor/device_pool.h"
#include "tensor/recording.h"

namespace tessera::ops {
namespace {

using tensor::Device;
using tensor::DType;
using tensor::Storage;
using tensor::Tensor;

constexpr int64_t kMostBytes = 1 << 20, kMostKept = 16 << 20;

Tensor sent(const void* data, int64_t bytes) {
  const Tensor host = Tensor::over(Storage::view(data, bytes, nullptr), 0, {bytes}, DType::u8);
  return host.to(Device::cuda, tensor::MemoryClass::buffers);
}

/// The same rows and spans come again in every block and step: what was sent stays, by content.
/// Nobody writes to it. It is speed alone, so it may be of the process.
class Sent {
 public:
  Tensor get(const void* data, int64_t bytes) {
    std::string key(static_cast<const char*>(data), static_cast<size_t>(bytes));
    const std::lock_guard lock(mutex_);
    const auto pool = tensor::device_pool();
    if (pool.get() != pool_ || kept_ + bytes > kMostKept) {
      tensors_.clear();
      kept_ = 0;
      pool_ = pool.get();
    }
    Tensor& kept = tensors_[std::move(key)];
    if (!kept.defined()) {
      kept = sent(data, bytes);
      kept_ += bytes;
    }
    return kept;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, Tensor> tensors_;  // they keep the pool's address from another's use
  const tensor::DevicePool* pool_ = nullptr;
  int64_t kept_ = 0;
};

Sent& all_sent() {
  static Sent* const one = new Sent;  // a device may be gone before static storage is
  return *one;
}

}  // namespace

Tensor uploaded(const void* data, int64_t bytes) {
  const Tensor there = bytes <= kMostBytes ? all_sent().get(data, bytes) : sent(data, bytes);
  if (tensor::Recording* recording = tensor::current_scope().recording) recording->keep(there);
  return there;
}

void require_beside(const char* op, const char* name, const Tensor& operand, Device device) {
  if (!operand.defined() || operand.device() == device || device == Device::meta) return;
  require(operand.is_meta(), ErrorCode::usage, "{}: {} is on {}, x on {}; put both on one device",
          op, name, tensor::name_of(operand.device()), tensor::name_of(device));
}

}  // namespace tessera::ops

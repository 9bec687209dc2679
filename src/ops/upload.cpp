#include "ops/upload.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/fail.h"
#include "tensor/device_pool.h"
#include "tensor/recording.h"
#include "tensor/shape_format.h"

namespace tessera::ops {
namespace {

using tensor::Device;
using tensor::DType;
using tensor::Storage;
using tensor::Tensor;

constexpr int64_t kMostBytes = 1 << 20, kMostCached = 16 << 20;

Tensor sent(const void* data, int64_t bytes, Device device) {
  const Tensor host = Tensor::over(Storage::view(data, bytes, nullptr), 0, {bytes}, DType::u8);
  return host.to(device, tensor::MemoryClass::buffers);
}

/// The same rows and spans recur in every block and step, so uploads are cached by content. The
/// cached data is immutable. A pure optimisation, so the cache may be global.
class UploadCache {
 public:
  Tensor get(const void* data, int64_t bytes, Device device) {
    std::string key(static_cast<const char*>(data), static_cast<size_t>(bytes));
    const std::lock_guard lock(mutex_);
    const auto pool = tensor::device_pool();
    if (pool.get() != pool_) clear();
    pool_ = pool.get();
    if (const auto it = tensors_.find(key); it != tensors_.end()) return it->second;
    if (bytes_ + bytes > kMostCached) clear();
    const Tensor tensor = sent(data, bytes, device);
    tensors_.emplace(std::move(key), tensor);
    bytes_ += bytes;
    return tensor;
  }

 private:
  void clear() {
    tensors_.clear();
    bytes_ = 0;
  }
  std::mutex mutex_;
  std::map<std::string, Tensor> tensors_;  // keeps the pool from reusing the addresses
  const tensor::DevicePool* pool_ = nullptr;
  int64_t bytes_ = 0;
};

UploadCache& upload_cache() {
  static UploadCache* const cache =
      new UploadCache;  // leaked: a device may be destroyed before static storage
  return *cache;
}

}  // namespace

Tensor uploaded(const void* data, int64_t bytes, Device device) {
  const Tensor there =
      bytes <= kMostBytes ? upload_cache().get(data, bytes, device) : sent(data, bytes, device);
  if (tensor::Recording* recording = tensor::current_scope().recording) recording->keep(there);
  return there;
}

RowMap::RowMap(const std::vector<int32_t>& rows, Device device) {
  if (rows.empty()) return;
  const auto [lowest, highest] = std::minmax_element(rows.begin(), rows.end());
  lowest_ = *lowest, highest_ = *highest;
  const tensor::Shape shape{static_cast<int64_t>(rows.size())};
  rows_ = device == Device::meta ? Tensor::empty(shape, DType::i32, device)
                                 : Tensor::from(std::span<const int32_t>(rows), shape).to(device);
}

void RowMap::check(const char* op, int64_t tokens, const char* name, const Tensor& table) const {
  const int64_t rows = table.size(0), row_count = rows_.defined() ? rows_.size(0) : tokens;
  require(row_count == tokens, ErrorCode::usage,
          "{}: row_of of {} entries for {} tokens; give one a token", op, row_count, tokens);
  require(tokens == 0 || (lowest_ >= 0 && highest_ < rows), ErrorCode::usage,
          "{}: row_of holds {}; the {} has {} rows", op, lowest_ < 0 ? lowest_ : highest_, name,
          rows);
  require_beside(op, "row_of", rows_, table.device());
}

const int32_t* RowMap::data() const { return rows_.defined() ? rows_.data<int32_t>() : nullptr; }

RowMap RowMap::part(int64_t begin, int64_t end) const {
  RowMap part = *this;
  if (rows_.defined()) part.rows_ = rows_.slice(0, begin, end);
  return part;
}

Tensor result_of(const char* op, const Tensor& into, const tensor::Shape& shape, DType dtype,
                 Device device) {
  if (!into.defined()) return Tensor::empty(shape, dtype, device);
  require(into.shape() == shape && into.dtype() == dtype && into.device() == device,
          ErrorCode::usage, "{}: a result {} of {} does not fit into {} of {}", op, shape,
          tensor::name_of(dtype), into.shape(), tensor::name_of(into.dtype()));
  return into;
}

void require_beside(const char* op, const char* name, const Tensor& operand, Device device) {
  if (!operand.defined() || operand.device() == device || device == Device::meta) return;
  require(operand.is_meta(), ErrorCode::usage, "{}: {} is on {}, x on {}; put both on one device",
          op, name, tensor::name_of(operand.device()), tensor::name_of(device));
}

}  // namespace tessera::ops

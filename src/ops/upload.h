#pragma once

#include <span>
#include <vector>

#include "tensor/device_pool.h"
#include "tensor/tensor.h"

namespace tessera::ops {

/// Copies host bytes to GPU memory; the bytes are read before the function returns. Read-only:
/// equal bytes are uploaded once and cached for a while.
tensor::Tensor uploaded(const void* data, int64_t bytes, tensor::Device device);

/// A small host array (rows, spans, ids) readable by the kernels of a device: on cpu the array
/// itself, which must outlive this object. Valid for a single call.
template <class T>
class Uploaded {
 public:
  Uploaded(std::span<const T> host, tensor::Device device)
      : data_(host.empty() ? nullptr : host.data()) {
    if (!tensor::is_gpu(device) || host.empty()) return;
    copy_ = uploaded(host.data(), static_cast<int64_t>(host.size_bytes()), device);
    data_ = static_cast<const T*>(copy_.raw());
  }
  const T* data() const { return data_; }

 private:
  tensor::Tensor copy_;
  const T* data_;
};

/// Row index of each token, for gates, shifts and scales: checked once, and stored on the device.
/// Empty: row 0 for all tokens.
class RowMap {
 public:
  RowMap() = default;
  RowMap(const std::vector<int32_t>& rows, tensor::Device device = tensor::Device::cpu);
  /// Throws Error(usage) unless there is a row for each of `tokens`, all inside `table`.
  void check(const char* op, int64_t tokens, const char* name, const tensor::Tensor& table) const;
  const int32_t* data() const;
  /// The map of tokens [begin, end).
  RowMap part(int64_t begin, int64_t end) const;

 private:
  tensor::Tensor rows_;
  int32_t lowest_ = 0, highest_ = 0;
};

/// Destination for a result of `op`: `into` if given and matching, else new memory.
tensor::Tensor result_of(const char* op, const tensor::Tensor& into, const tensor::Shape& shape,
                         tensor::DType dtype, tensor::Device device);

/// Throws Error(usage) if an operand of `op` is not on `device`, the device of x. Undefined and
/// meta operands pass.
void require_beside(const char* op, const char* name, const tensor::Tensor& operand,
                    tensor::Device device);

}  // namespace tessera::ops

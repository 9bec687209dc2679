#pragma once

#include <span>
#include <vector>

#include "tensor/device_pool.h"
#include "tensor/tensor.h"

namespace tessera::ops {

/// Bytes of the host in memory of a GPU; they have been read when this returns. Not to be written
/// to: the same bytes are sent once and kept for a while.
tensor::Tensor uploaded(const void* data, int64_t bytes, tensor::Device device);

/// A small array of the host (rows, spans, ids) where the kernels of a device can read it: on cpu
/// the array itself, which must outlive this. It lives as long as the call that it is for.
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

/// The row of each token, for gates, shifts and scales: looked at once, and kept where the kernels
/// of a device read it. Without tokens: row 0 for all.
class RowMap {
 public:
  RowMap() = default;
  RowMap(const std::vector<int32_t>& rows, tensor::Device device = tensor::Device::cpu);
  /// Throws Error(usage) unless it has a row for each of `tokens`, all of them in `table`.
  void check(const char* op, int64_t tokens, const char* name, const tensor::Tensor& table) const;
  const int32_t* data() const;
  /// Of the tokens [begin, end) alone.
  RowMap part(int64_t begin, int64_t end) const;

 private:
  tensor::Tensor rows_;
  int32_t lowest_ = 0, highest_ = 0;
};

/// Where `op` writes a result of so many rows and columns: `into` where that is given, which has to
/// fit, else new memory.
tensor::Tensor result_of(const char* op, const tensor::Tensor& into, const tensor::Shape& shape,
                         tensor::DType dtype, tensor::Device device);

/// Throws Error(usage) if an operand of `op` has elements on another device than `device`, where x
/// is. Undefined and meta operands pass.
void require_beside(const char* op, const char* name, const tensor::Tensor& operand,
                    tensor::Device device);

}  // namespace tessera::ops

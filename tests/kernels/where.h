#pragma once

#include <cstring>
#include <vector>

#include "kernels/packed_weight.h"
#include "tensor/tensor.h"

namespace tessera::kernels {

/// The place of a call's arrays: on the host, or on the device of the tested kernels. Copies a
/// test's host data to the place; on the host the data is returned as is.
struct Where {
  tensor::Device device = tensor::Device::cpu;

  tensor::Tensor operator()(const tensor::Tensor& t) const { return t.to(device); }
  /// A tensor with the bytes of `values`.
  template <class T>
  tensor::Tensor operator()(const std::vector<T>& values) const {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    const tensor::Tensor t = tensor::Tensor::empty({bytes}, tensor::DType::u8);
    if (bytes > 0) std::memcpy(t.raw(), values.data(), static_cast<size_t>(bytes));
    return t.to(device);
  }
  PackedWeight operator()(PackedWeight w) const {
    w.data = w.data.to(device);
    w.scales = w.scales.to(device);
    return w;
  }
};
inline constexpr Where kHost{}, kThere{tensor::Device::cuda};

/// Copies a kernel's result to the host.
inline tensor::Tensor here(const tensor::Tensor& t) { return t.to(tensor::Device::cpu); }

}  // namespace tessera::kernels

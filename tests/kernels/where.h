#pragma once

#include <cstring>
#include <vector>

#include "kernels/packed_weight.h"
#include "tensor/tensor.h"

namespace tessera::kernels {

/// Where the arrays of a call live: on the host, or on the device whose kernels are tested. Takes
/// what a test made on the host there; on the host that is the thing itself.
struct Where {
  tensor::Device device = tensor::Device::cpu;

  tensor::Tensor operator()(const tensor::Tensor& t) const { return t.to(device); }
  /// Its bytes.
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

/// What a kernel left there, for the host to read.
inline tensor::Tensor here(const tensor::Tensor& t) { return t.to(tensor::Device::cpu); }

}  // namespace tessera::kernels

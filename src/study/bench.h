#pragma once

#include <functional>
#include <string>

#include "tensor/tensor.h"

namespace tessera::study {

/// Where kernels are measured, by what, and who listens.
struct Bench {
  const std::function<void(const std::string& json)>& line;
  tensor::Device device = tensor::Device::cpu;
  /// FLOP/s of products in bf16 and f32, bytes/s: the machine's own.
  double peak = 1, peak_f32 = 1, bandwidth = 1;
  double size = 1;  ///< of the problems: tokens that fill a machine of this kind

  /// `tokens` of a CPU here; at least 16.
  int64_t many(int64_t tokens) const;
  /// Values that neither cancel nor overflow, in no short pattern.
  tensor::Tensor filled(const tensor::Shape& shape, tensor::DType dtype) const;
  /// Of one call, the best of `times`. Calls for a device are recorded and replayed, or at least
  /// queued, so that the host's time to start one does not count.
  double seconds(const std::function<void()>& f, int times) const;
  /// A line for a kernel that is bound by products, and one for what only moves bytes.
  void products(const std::string& kernel, const std::string& shape, double flops,
                double seconds) const;
  void products_f32(const std::string& kernel, const std::string& shape, double flops,
                    double seconds) const;
  void moves(const std::string& kernel, const std::string& shape, double bytes,
             double seconds) const;
};

}  // namespace tessera::study

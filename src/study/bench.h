#pragma once

#include <functional>
#include <string>

#include "tensor/tensor.h"

namespace tessera::study {

/// Device, parameters and output of kernel measurements.
struct Bench {
  const std::function<void(const std::string& json)>& line;
  tensor::Device device = tensor::Device::cpu;
  /// FLOP/s of products in bf16 and f32, and bytes/s: the machine's own.
  double peak = 1, peak_f32 = 1, bandwidth = 1;
  double size = 1;  ///< factor of problem sizes that fills a machine of this kind

  /// `tokens` for a CPU; at least 16.
  int64_t many(int64_t tokens) const;
  /// Values without cancellation, overflow or short patterns.
  tensor::Tensor filled(const tensor::Shape& shape, tensor::DType dtype) const;
  /// Seconds of a call, the best of `times`. Device calls are recorded and replayed, or at least
  /// queued, so the host's start time does not count.
  double seconds(const std::function<void()>& f, int times) const;
  /// A line for a kernel bound by products, and a line for a kernel bound by memory.
  void products(const std::string& kernel, const std::string& shape, double flops,
                double seconds) const;
  void products_f32(const std::string& kernel, const std::string& shape, double flops,
                    double seconds) const;
  void moves(const std::string& kernel, const std::string& shape, double bytes,
             double seconds) const;
};

}  // namespace tessera::study

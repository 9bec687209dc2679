#pragma once

#include <cstdint>

#include "device/emulated_device.h"

namespace tessera::device {

/// A whole GPU that is none: its kernels are the reference ones of the CPU, so results are the
/// reference's bit by bit; each checks first that the arrays it was given are the device's.
class EmulatedGpu : public EmulatedDevice {
 public:
  explicit EmulatedGpu(int64_t capacity = int64_t{2} << 30);
  ~EmulatedGpu();

  /// Kernels so far.
  int64_t kernels() const;
};

}  // namespace tessera::device

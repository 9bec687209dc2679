#pragma once

#include <cstdint>

#include "device/emulated_device.h"

namespace tessera::device {

/// A whole emulated GPU. The kernels are the CPU's reference kernels, so results equal the
/// reference bit by bit; each first checks for arrays of the device.
class EmulatedGpu : public EmulatedDevice {
 public:
  explicit EmulatedGpu(int64_t capacity = int64_t{2} << 30);
  ~EmulatedGpu();

  /// Kernels so far.
  int64_t kernels() const;
};

}  // namespace tessera::device

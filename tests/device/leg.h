#pragma once

// Tests of whole models run in two legs, too: an emulated GPU with the CPU's reference kernels,
// compared bit by bit with the CPU, and a real GPU (TESSERA_ON_GPU), compared within tolerances.
// TESSERA_DEVICE_TEST=apart uses tolerances for the emulated leg as well: its CPU then runs the
// strongest available kernels, which differ from the reference as a GPU's do.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/isa.h"
#include "tensor/dtype.h"
#include "whole/golden.h"
#if defined(TESSERA_ON_GPU)
#include "tensor/device_pool.h"
#else
#include "device/emulated_gpu.h"
#endif

namespace tessera::device {

#if defined(TESSERA_ON_GPU)
inline constexpr bool kOnGpu = true;

/// The GPU of the program.
class Gpu {
 public:
  Gpu() { tensor::device_pool()->runtime().enter(); }
  void expect_kernels(int64_t) const {
    EXPECT_GT(tensor::device_pool()->use().allocations, 0) << "nothing was ever on the GPU";
  }
  void expect_replays(int64_t) const {}  // a real GPU has no count
  std::string name() const { return tensor::device_pool()->runtime().name(); }
};
#else
inline constexpr bool kOnGpu = false;

class Gpu : public EmulatedGpu {
 public:
  using EmulatedGpu::EmulatedGpu;
  /// At least `least` kernels ran.
  void expect_kernels(int64_t least) const { EXPECT_GT(kernels(), least); }
  /// No step needed the host, otherwise there would be fewer replays.
  void expect_replays(int64_t count) const { EXPECT_EQ(replays(), count); }
  std::string name() const { return pool().runtime().name(); }
};
#endif

/// Whether the device must give the CPU's bits.
inline bool bitwise() { return !kOnGpu && kernels::active_isa() == kernels::Isa::reference; }

/// L2 tolerance of a whole model for another order of computation.
inline double tolerance(tensor::DType dtype) { return dtype == tensor::DType::f32 ? 1e-4 : 3e-2; }

/// Compares the device's values with the CPU's, as exactly as the leg allows.
inline void expect_same(const std::vector<float>& there, const std::vector<float>& here,
                        double most) {
  if (bitwise()) {
    EXPECT_EQ(there, here);
    return;
  }
  EXPECT_LT(golden::l2_error(there, here), most);
}
inline void expect_same(const std::vector<float>& there, const std::vector<float>& here,
                        tensor::DType dtype) {
  expect_same(there, here, tolerance(dtype));
}

/// Compares rows of a network that chooses experts in bf16: rows with nearly equal experts may
/// choose others, so the median row is compared strictly, and the whole loosely.
inline void expect_same_choices(const std::vector<float>& there, const std::vector<float>& here,
                                size_t rows, tensor::DType dtype) {
  if (bitwise() || dtype == tensor::DType::f32) return expect_same(there, here, dtype);
  ASSERT_EQ(there.size(), here.size());
  const size_t width = here.size() / rows;
  std::vector<double> errors;
  for (size_t i = 0; i < here.size(); i += width) {
    const auto row = [&](const std::vector<float>& x) {
      const auto first = x.begin() + static_cast<int64_t>(i);
      return std::vector<float>(first, first + static_cast<int64_t>(width));
    };
    errors.push_back(golden::l2_error(row(there), row(here)));
  }
  std::sort(errors.begin(), errors.end());
  EXPECT_LT(errors[rows / 2], tolerance(dtype));
  EXPECT_LT(golden::l2_error(there, here), 5 * tolerance(dtype)) << testing::PrintToString(errors);
}

}  // namespace tessera::device

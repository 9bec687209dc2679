#include "device/emulated_gpu.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "kernels/copy.h"
#include "kernels/table.h"
#include "tensor/tensor.h"

namespace tessera::device {
namespace {

using tensor::Device;
using tensor::Tensor;

TEST(EmulatedGpuDeathTest, TheHostCannotReadItsMemory) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const EmulatedGpu gpu;
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3}, {3}).to(Device::cuda);
  EXPECT_EQ(x.to_floats(), (std::vector<float>{1, 2, 3}));
  EXPECT_DEATH(static_cast<void>(*static_cast<volatile float*>(x.raw())), "");
  EXPECT_DEATH(*static_cast<volatile float*>(x.raw()) = 1, "");
}

TEST(EmulatedGpu, KernelsRefuseArraysOfTheHost) {
  const EmulatedGpu gpu;
  const std::vector<float> host(4);
  const Tensor there = Tensor::zeros({4}, tensor::DType::f32, Device::cuda);
  const kernels::CopyArgs args{.x = host.data(),
                               .y = there.raw(),
                               .element = 4,
                               .axes = 1,
                               .size = {4},
                               .x_stride = {1},
                               .y_stride = {1}};
  EXPECT_THROW(kernels::table_of(Device::cuda).copy(args), std::logic_error);
}

TEST(EmulatedGpu, MemoryIsGivenBack) {
  const EmulatedGpu gpu(1 << 20);
  const int64_t before = gpu.pool().runtime().memory().free;
  for (int i = 0; i < 100; ++i) {
    const Tensor a = Tensor::zeros({50000}, tensor::DType::f32, Device::cuda);
    const Tensor b = Tensor::zeros({100 * (i + 1)}, tensor::DType::f32, Device::cuda);
  }
  gpu.pool().flush();
  EXPECT_EQ(gpu.pool().runtime().memory().free, before);
}

}  // namespace
}  // namespace tessera::device

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "fake_runtime.h"
#include "tensor/device_pool.h"
#include "tensor/scope.h"
#include "tensor/tensor.h"
#include "tessera/error.h"

namespace tessera::tensor {
namespace {

// Serves Device::cuda by a fake runtime until destruction.
struct UseFake {
  UseFake() { use_device(std::make_shared<DevicePool>(runtime)); }
  ~UseFake() { use_device(nullptr); }
  std::shared_ptr<FakeRuntime> runtime = std::make_shared<FakeRuntime>();
};

std::vector<float> rising(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

TEST(DeviceRuntime, WithoutOneTensorsOnAGpuSayWhatToDo) {
  EXPECT_FALSE(has_device());
  try {
    Tensor::empty({4}, DType::f32, Device::cuda);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_STREQ(error.what(), "no GPU is in use: name one with `device` cuda");
  }
}

TEST(DeviceRuntime, TensorsGoThereAndBack) {
  const UseFake fake;
  EXPECT_TRUE(has_device());
  const auto values = rising(24);
  const Tensor here = Tensor::from(std::span<const float>(values), {2, 3, 4});
  const Tensor there = here.to(Device::cuda);
  EXPECT_EQ(there.device(), Device::cuda);
  EXPECT_EQ(fake.runtime->copies, std::vector{CopyWay::upload});
  EXPECT_EQ(fake.runtime->waits, 0);
  EXPECT_EQ(there.to(Device::cuda).raw(), there.raw());
  EXPECT_EQ(there.to(Device::cpu).to_floats(), values);
  EXPECT_EQ(fake.runtime->waits, 1);
  EXPECT_EQ(there.to_floats(), values);
  EXPECT_EQ(there.to(Device::meta).shape(), Shape({2, 3, 4}));
  EXPECT_THROW(Tensor::empty({2}, DType::f32, Device::meta).to(Device::cuda), Error);
}

TEST(DeviceRuntime, ViewsAreCopiedAsOnTheHost) {
  const UseFake fake;
  const auto values = rising(2 * 5 * 6 * 7);
  const Tensor here = Tensor::from(std::span<const float>(values), {2, 5, 6, 7});
  const Tensor there = here.to(Device::cuda);
  const auto view = [](const Tensor& x) { return x.slice(1, 1, 4).slice(2, 2, 5).slice(3, 3, 6); };
  EXPECT_EQ(view(there).contiguous().device(), Device::cuda);
  EXPECT_EQ(view(there).contiguous().to_floats(), view(here).to_floats());
  EXPECT_EQ(view(there).to(Device::cpu).to_floats(), view(here).to_floats());
  EXPECT_EQ(view(here).to(Device::cuda).to_floats(), view(here).to_floats());
  fake.runtime->copies.clear();
  there.slice(1, 1, 4).contiguous();
  there.reshape({10, 42}).slice(1, 5, 9).contiguous();
  EXPECT_EQ(fake.runtime->copies.size(), 2u);  // a matrix of runs is a single call
}

TEST(DeviceRuntime, CopyIntoTakesViewsOnEitherSide) {
  const UseFake fake;
  const auto values = rising(12);
  const Tensor here = Tensor::from(std::span<const float>(values), {3, 4});
  for (const Device to : {Device::cpu, Device::cuda})
    for (const Device from : {Device::cpu, Device::cuda}) {
      const Tensor target = Tensor::zeros({3, 6}, DType::f32, to);
      copy_into(target.slice(1, 1, 4), here.to(from).slice(1, 0, 3));
      EXPECT_EQ(target.to_floats(),
                (std::vector<float>{0, 0, 1, 2, 0, 0, 0, 4, 5, 6, 0, 0, 0, 8, 9, 10, 0, 0}));
    }
  EXPECT_THROW(copy_into(here, here.slice(1, 0, 3)), Error);
  copy_into(Tensor::empty({0, 4}, DType::f32, Device::cuda), here.slice(0, 0, 0));
}

TEST(DeviceRuntime, SettleWaitsForAGpuAlone) {
  settle(Device::cpu);  // there is none to ask
  settle(Device::meta);
  EXPECT_THROW(settle(Device::cuda), Error);
  const UseFake fake;
  settle(Device::cuda);
  EXPECT_EQ(fake.runtime->waits, 1);
  EXPECT_EQ(fake.runtime->entered, 1);
}

TEST(DeviceRuntime, BytesAreCountedByClassAndOutliveTheRegistration) {
  const auto memory = std::make_shared<MemoryTracker>();
  Scope scope;
  scope.memory = memory;
  const BindScope bind(scope);
  const auto runtime = std::make_shared<FakeRuntime>();
  use_device(std::make_shared<DevicePool>(runtime));
  {
    const Tensor x = Tensor::zeros({1000}, DType::f32, Device::cuda, MemoryClass::weights);
    EXPECT_EQ(memory->current(MemoryClass::weights), 4000);
    use_device(nullptr);
    EXPECT_GT(runtime->used(), 0);
  }
  EXPECT_EQ(memory->current(MemoryClass::weights), 0);
  EXPECT_EQ(runtime->used(), 0);
}

}  // namespace
}  // namespace tessera::tensor

#include "tensor/recording.h"

#include <gtest/gtest.h>

#include "recording_runtime.h"

namespace tessera::tensor {
namespace {

Tensor there(const std::vector<float>& values) {
  return Tensor::from(std::span<const float>(values), {static_cast<int64_t>(values.size())})
      .to(Device::cuda);
}

TEST(Recording, DoesNothingAtFirstAndTheSameEveryTime) {
  const UseRecordingRuntime device;
  const Tensor x = there({1, 2}), y = there({0, 0});
  const auto recording = Recording::attempt([&] {
    const Tensor between = Tensor::empty({2}, DType::f32, Device::cuda);
    copy_into(between, x);
    copy_into(y, between);
  });
  ASSERT_TRUE(recording);
  EXPECT_EQ(y.to_floats(), (std::vector<float>{0, 0}));
  recording->replay();
  EXPECT_EQ(y.to_floats(), (std::vector<float>{1, 2}));
  copy_into(x, there({5, 6}));
  recording->replay();
  EXPECT_EQ(y.to_floats(), (std::vector<float>{5, 6}));
}

TEST(Recording, KeepsItsMemoryFromOthers) {
  const UseRecordingRuntime device;
  const Tensor x = there({1, 2}), y = there({0, 0});
  const void* taken = nullptr;
  {
    const auto recording = Recording::attempt([&] {
      const Tensor between = Tensor::empty({2}, DType::f32, Device::cuda);
      taken = between.raw();
      copy_into(between, x);
      copy_into(y, between);
    });
    const Tensor other = there({9, 9}), third = there({8, 8});
    EXPECT_NE(other.raw(), taken);
    recording->replay();
    EXPECT_EQ(other.to_floats(), (std::vector<float>{9, 9}));
  }
  std::vector<Tensor> held;  // the memory is free again
  do held.push_back(Tensor::empty({2}, DType::f32, Device::cuda));
  while (held.back().raw() != taken && held.size() < 9);
  EXPECT_EQ(held.back().raw(), taken);
}

TEST(Recording, IsNoneWhereTheHostTakesPartOrTheDeviceCannot) {
  const UseRecordingRuntime device;
  const Tensor x = there({1, 2});
  EXPECT_FALSE(Recording::attempt([&] { x.to(Device::cpu); }));
  EXPECT_FALSE(Recording::attempt([&] { there({3}); }));
  EXPECT_FALSE(Recording::attempt([&] {
    Tensor::empty({int64_t{1} << 40}, DType::f32, Device::cuda);  // more than there is
  }));
  for (const ErrorCode code : {ErrorCode::rank, ErrorCode::usage, ErrorCode::model})
    EXPECT_FALSE(Recording::attempt([&] { throw Error(code, "a capture that failed"); }));
  EXPECT_THROW(Recording::attempt([] { throw Error(ErrorCode::cancelled, "stopped"); }), Error);
  EXPECT_THROW(Recording::attempt([] { throw std::logic_error("its own"); }), std::logic_error);
  device.runtime->refuses = true;
  EXPECT_FALSE(Recording::attempt([] {}));
  EXPECT_EQ(x.to_floats(), (std::vector<float>{1, 2}));  // and copies are done again
}

TEST(Recording, IsNotWantedWhereTheEnvironmentSaysSo) {
  const UseRecordingRuntime device;
  ::setenv("TESSERA_GRAPHS", "0", 1);
  EXPECT_FALSE(Recording::attempt([] {}));
  ::setenv("TESSERA_GRAPHS", "1", 1);
  EXPECT_TRUE(Recording::attempt([] {}));
  ::setenv("TESSERA_GRAPHS", "no", 1);
  EXPECT_THROW(Recording::attempt([] {}), Error);
  ::unsetenv("TESSERA_GRAPHS");
}

TEST(Recording, IsCountedEveryTime) {
  const UseRecordingRuntime device;
  Scope scope;
  scope.meter = std::make_shared<Meter>();
  const BindScope bind(scope);
  const auto recording = Recording::attempt([] { current_scope().meter->add("op", 3, 5); });
  EXPECT_EQ(scope.meter->total().calls, 0);
  recording->replay();
  recording->replay();
  EXPECT_EQ(scope.meter->total().calls, 2);
  EXPECT_EQ(scope.meter->total().flops, 6);
  EXPECT_EQ(scope.meter->total().bytes, 10);
}

}  // namespace
}  // namespace tessera::tensor

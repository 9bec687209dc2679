#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "device/leg.h"
#include "tensor/device_pool.h"
#include "tensor/scope.h"
#include "tensor/tensor.h"

namespace tessera::device {
namespace {

using tensor::Device;
using tensor::DType;
using tensor::Tensor;

TEST(StreamsOnGpu, EventsOrderThem) {
  const Gpu gpu;
  tensor::DeviceRuntime& runtime = tensor::device_pool()->runtime();
  const auto first = runtime.make_stream(), second = runtime.make_stream();
  const int64_t count = int64_t{1} << 20;
  const Tensor x = Tensor::empty({count}, DType::f32, Device::cuda),
               y = Tensor::empty({count}, DType::f32, Device::cuda);
  for (int round = 0; round < 20; ++round) {
    const Tensor host = Tensor::from(std::vector<float>(count, float(round)), {count});
    tensor::Scope scope;
    scope.stream = first.get();
    {
      const tensor::BindScope bound(scope);
      copy_into(x, host);
    }
    runtime.wait(second.get(), runtime.record(first.get()).get());
    scope.stream = second.get();
    {
      const tensor::BindScope bound(scope);
      copy_into(y, x);
    }
    const auto done = runtime.record(second.get());
    runtime.wait(first.get(), done.get());  // the next round writes x
    runtime.wait(nullptr, done.get());
    EXPECT_EQ(y.to_floats().back(), float(round));
    EXPECT_TRUE(runtime.done(done.get())) << "what came after it has ended";
  }
}

TEST(StreamsOnGpu, TensorsOfSeveralTypesComeTogether) {
  const Gpu gpu;
  const Tensor ids = Tensor::from(std::vector<int32_t>{3, -1, 7, 2, 5, 9}, {2, 3}),
               weights = Tensor::from(std::vector<float>{0.5f, -2, 8}, {3});
  const auto here = tensor::to_host({ids.to(Device::cuda).slice(1, 1, 3), weights.to(Device::cuda),
                                     Tensor::empty({0}, DType::f32, Device::cuda)});
  ASSERT_EQ(here.size(), 3u);
  for (const Tensor& one : here) EXPECT_EQ(one.device(), Device::cpu);
  EXPECT_EQ(here[0].shape(), (tensor::Shape{2, 2}));
  EXPECT_EQ(here[0].to_ints(), (std::vector<int64_t>{-1, 7, 5, 9}));
  EXPECT_EQ(here[1].to_floats(), weights.to_floats());
  EXPECT_EQ(here[2].elements(), 0);
  EXPECT_EQ(tensor::to_host({ids}).front().raw(), ids.raw()) << "it is there";
  EXPECT_TRUE(tensor::to_host({}).empty());
}

TEST(StreamsOnGpu, AnEventIsDoneWhenItsWorkIs) {
  const Gpu gpu;
  tensor::DeviceRuntime& runtime = tensor::device_pool()->runtime();
  const auto stream = runtime.make_stream();
  const Tensor x = Tensor::empty({int64_t{1} << 22}, DType::f32, Device::cuda);
  runtime.zero(x.raw(), x.bytes(), stream.get());
  const auto event = runtime.record(stream.get());
  while (!runtime.done(event.get())) std::this_thread::yield();
  runtime.synchronise(stream.get());
  EXPECT_EQ(x.to_floats().back(), 0);
}

}  // namespace
}  // namespace tessera::device

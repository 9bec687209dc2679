#include "parallel/recorded_step.h"

#include <gtest/gtest.h>

#include "tensor/recording_runtime.h"

namespace tessera::parallel {
namespace {

using tensor::CopyWay;
using tensor::Device;
using tensor::Tensor;

Tensor on_device(const std::vector<float>& values) {
  return Tensor::from(std::span<const float>(values), {static_cast<int64_t>(values.size())})
      .to(Device::cuda);
}

// Copies need no kernel: [time, latent].
Tensor work(const Tensor& time, const Tensor& latent) {
  const Tensor y = Tensor::empty({time.size(0) + latent.size(0)}, time.dtype(), time.device());
  tensor::copy_into(y.slice(0, 0, time.size(0)), time);
  tensor::copy_into(y.slice(0, time.size(0), y.size(0)), latent);
  return y;
}

TEST(RecordedStep, RecordsTheSecondCallAndReplaysTheLater) {
  const tensor::UseRecordingRuntime device;
  int calls = 0;
  RecordedStep step([&](const Tensor& t, const Tensor& x) { return ++calls, work(t, x); }, true,
                    nullptr);
  std::vector<Tensor> kept;
  for (float i = 0; i < 5; ++i) kept.push_back(step(on_device({i}), on_device({10 * i, 7})));
  for (size_t i = 0; i < kept.size(); ++i)  // earlier results are not overwritten
    EXPECT_EQ(kept[i].to_floats(), (std::vector<float>{float(i), 10.0f * float(i), 7}));
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(device.runtime->launches, 4);
}

TEST(RecordedStep, IsCalledEveryTimeWhereItMayNotOrCannotBeRecorded) {
  const tensor::UseRecordingRuntime device;
  for (bool may : {false, true}) {
    int calls = 0;
    RecordedStep step(
        [&](const Tensor& t, const Tensor& x) {
          ++calls;
          return work(t, x.to(Device::cpu).to(Device::cuda));  // needs the host
        },
        may, nullptr);
    for (float i = 0; i < 4; ++i)
      EXPECT_EQ(step(on_device({i}), on_device({3})).to_floats(), (std::vector<float>{i, 3}));
    EXPECT_EQ(calls, may ? 5 : 4);  // a single attempt
  }
  EXPECT_EQ(device.runtime->launches, 0);
}

}  // namespace
}  // namespace tessera::parallel

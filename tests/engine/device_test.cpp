#include "engine/device.h"

#include <gtest/gtest.h>

#include <memory>

#include "tensor/device_pool.h"
#include "tensor/fake_runtime.h"
#include "tessera/error.h"

namespace tessera::engine {
namespace {

using tensor::Device;

std::string refusal(const std::string& text) {
  try {
    parse_device(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    return error.what();
  }
  return "nothing was refused";
}

TEST(Device, IsReadFromItsName) {
  EXPECT_EQ(parse_device("cpu").device, Device::cpu);
  EXPECT_EQ(parse_device("cuda").device, Device::cuda);
  EXPECT_EQ(parse_device("cuda").index, 0);
  EXPECT_EQ(parse_device("cuda:12").index, 12);
  for (const char* text : {"tpu", "", "cuda:", "cuda:-1", "cuda:1x", "cuda:99999999999", "CUDA"})
    EXPECT_NE(refusal(text).find("expected 'cpu', 'cuda' or 'cuda:N'"), std::string::npos) << text;
}

TEST(Device, TheCpuNeedsNoStart) {
  start_device({});
  EXPECT_FALSE(tensor::has_device());
  EXPECT_EQ(device_name({}), "cpu");
}

TEST(Device, OneThatTheCallerBroughtIsTaken) {
  tensor::use_device(
      std::make_shared<tensor::DevicePool>(std::make_shared<tensor::FakeRuntime>(1 << 20)));
  start_device({Device::cuda, 0});
  EXPECT_EQ(device_name({Device::cuda, 0}), "cuda:0 (Fake GPU)");
  EXPECT_EQ(free_device_memory(), 1 << 20);
  tensor::use_device(nullptr);
}

TEST(Device, AGpuThatIsNotThereIsRefused) {
  EXPECT_THROW(start_device({Device::cuda, 1000}), Error);
  EXPECT_FALSE(tensor::has_device());
}

}  // namespace
}  // namespace tessera::engine

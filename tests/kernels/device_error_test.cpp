#include "kernels/device_error.h"

#include <gtest/gtest.h>

#include <string>

#include "tessera/error.h"

namespace tessera::kernels {
namespace {

TEST(DeviceError, NamesKernelValueAndExpectation) {
  try {
    unsupported("norm", "width", 99999, "at most 32768");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_EQ(std::string(error.what()),
              "norm on cuda: width 99999; expected at most 32768; use `device` cpu for this model");
  }
}

TEST(DeviceError, MemoryHasItsOwnCode) {
  try {
    device_failed("experts", "out of memory", true);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::memory);
  }
  try {
    device_failed("experts", "no device", false);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
  }
}

}  // namespace
}  // namespace tessera::kernels

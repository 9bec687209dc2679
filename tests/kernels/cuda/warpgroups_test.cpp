#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <string>

#include "tessera/error.h"

namespace tessera::kernels::cuda {

bool has_warpgroups();

namespace {

// For the compiled form of a program see tests/tools/check_sass_test.py.
TEST(CudaWarpgroups, OnlyHopperHasThem) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) {
    int major = 0;
    ASSERT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), cudaSuccess);
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(has_warpgroups(), major == 9);
    return;
  }
  try {
    has_warpgroups();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("device on cuda: "), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::kernels::cuda

#include "kernels/cuda/row_map.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <string>

#include "tessera/error.h"

namespace tessera::kernels::cuda {
namespace {

TEST(CudaRowMap, SaysWhyItCannotBeMadeWithoutADriver) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess)
    GTEST_SKIP() << "a GPU is here: the tests labelled gpu cover it";
  alignas(16) const unsigned char rows[64] = {};
  try {
    row_map("attention", rows, 8, 4, 1, 8, 64);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_NE(std::string(error.what()).find("attention on cuda: "), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::kernels::cuda

#include "kernels/cuda/library_product.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <string>

#include "tessera/error.h"

namespace tessera::kernels::cuda {
namespace {

TEST(CudaLibraryProduct, SaysWhyItCannotRunWithoutADriver) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess)
    GTEST_SKIP() << "a GPU is here: the tests labelled gpu cover it";
  const float x[4] = {}, w[4] = {};
  float y[4];
  try {
    library_product(
        {.x = x, .w = w, .rows = 2, .n = 2, .k = 2, .x_stride = 2, .y_stride = 2, .y = y});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_NE(std::string(error.what()).find("matmul on cuda: "), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::kernels::cuda

#include "kernels/cuda/libraries.h"

#include <gtest/gtest.h>

#include <string>

#include "tessera/error.h"

namespace tessera::kernels::cuda {
namespace {

// A toolkit contains the libraries; opening them needs no GPU.
TEST(CudaLibraries, HoldEveryFunctionThatIsCalled) {
  const CublasLt& lt = cublas_lt();
  EXPECT_NE(lt.matmul, nullptr);
  EXPECT_EQ(&cublas_lt(), &lt);
  EXPECT_NE(std::string(lt.status_string(CUBLAS_STATUS_NOT_SUPPORTED)), "");
}

}  // namespace
}  // namespace tessera::kernels::cuda

#include <gtest/gtest.h>

#include <string>

#include "kernels/gpu.h"
#include "tessera/error.h"

namespace tessera::kernels {
namespace {

// Without a toolkit, a driver or the given GPU: a line names the reason and a remedy.
TEST(Gpu, OneThatIsNotThereIsRefusedInOneLine) {
  try {
    open_gpu(1000);
    FAIL() << "GPU 1000 was opened";
  } catch (const Error& error) {
    const std::string says = error.what();
    EXPECT_EQ(error.code(), ErrorCode::usage) << says;
    EXPECT_EQ(says.find('\n'), std::string::npos) << says;
    EXPECT_TRUE(says.find("without CUDA") != std::string::npos ||
                says.find("`device` cuda") != std::string::npos)
        << says;
    EXPECT_TRUE(says.find("cpu") != std::string::npos ||
                says.find("choose cuda:") != std::string::npos)
        << says;
  }
}

TEST(Gpu, TheyAreCountedOrRefused) {
  try {
    EXPECT_GT(gpu_count(), 0);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage) << error.what();
  }
}

}  // namespace
}  // namespace tessera::kernels

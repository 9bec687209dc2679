#include <gtest/gtest.h>

#include <string>

#include "kernels/table.h"
#include "tessera/error.h"

namespace tessera::kernels {
namespace {

TEST(NoCuda, SaysThatTheProgramLacksIt) {
  try {
    table_of(tensor::Device::cuda);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_NE(std::string(error.what()).find("built without CUDA"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::kernels

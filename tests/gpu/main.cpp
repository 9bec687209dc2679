#include <gtest/gtest.h>

#include <cstdio>
#include <exception>
#include <memory>

#include "kernels/gpu.h"
#include "temporary_folder.h"
#include "tensor/device_pool.h"

// Every test needs a GPU from sm_80; without a GPU the program fails with a message.
int main(int argc, char** argv) {
  const tessera::TemporaryFolder folder;
  testing::InitGoogleTest(&argc, argv);
  if (GTEST_FLAG_GET(list_tests)) return RUN_ALL_TESTS();
  try {
    tessera::tensor::use_device(
        std::make_shared<tessera::tensor::DevicePool>(tessera::kernels::open_gpu(0)));
    tessera::tensor::device_pool()->runtime().enter();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tessera_gpu_test: %s\n", error.what());
    return 1;
  }
  const int failed = RUN_ALL_TESTS();
  tessera::tensor::use_device(nullptr);
  return failed;
}

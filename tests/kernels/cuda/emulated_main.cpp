#include <gtest/gtest.h>

#include <memory>

#include "device/emulated_gpu.h"
#include "kernels/cuda/emulation.h"

namespace tessera {
namespace {

// Opens the emulated GPU's memory only to running kernels.
class EmulatedMemory : public testing::Environment {
  void SetUp() override {
    gpu_ = std::make_unique<device::EmulatedGpu>(int64_t{256} << 20);
    emulation::reach = [this](bool open) {
      if (open)
        open_ = std::make_unique<device::Arena::Open>(gpu_->arena());
      else
        open_.reset();
    };
  }
  void TearDown() override {
    emulation::reach = nullptr;
    gpu_.reset();
  }
  std::unique_ptr<device::EmulatedGpu> gpu_;
  std::unique_ptr<device::Arena::Open> open_;
};

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  testing::AddGlobalTestEnvironment(new tessera::EmulatedMemory);
  return RUN_ALL_TESTS();
}

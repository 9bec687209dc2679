#include "device/emulated_kernels.h"
// Before the emulation, which renames a word.
#include "fused/cuda/device_world.h"
// Include the world first: the emulation renames a word.
#include <mutex>

#include "fused/cuda/emulated_ranks.h"
#include "fused/device_layers.h"

namespace tessera::fused {
namespace {

std::mutex emulating;  // the emulation runs one kernel at a time

template <class Args, void (*Kernel)(const Args&)>
void one_at_a_time(const Args& args) {
  const std::lock_guard lock(emulating);
  Kernel(args);
}

class LayersInTurn final : public DeviceLayers {
 public:
  explicit LayersInTurn(const DeviceSize& size) : layers_(size, {.patience = 1000000}) {}
  void run(std::span<const DeviceLayer> layers) override {
    const std::lock_guard lock(emulating);
    layers_.run(layers);
  }

 private:
  cuda::DeviceOperator layers_;
};

const kernels::KernelTable& table() {
  static const kernels::KernelTable made = [] {
    kernels::KernelTable t = device::emulated_table();
    t.experts = one_at_a_time<kernels::ExpertsArgs, kernels::cuda::experts>;
    t.combine = one_at_a_time<kernels::CombineArgs, kernels::cuda::combine>;
    return t;
  }();
  return made;
}

}  // namespace

EmulatedExperts::EmulatedExperts(bool warpgroups) {
  emulation::warpgroups = warpgroups;
  emulation::resident_blocks = 16;
  kernels::replace_cuda_table(&table());
  replace_device_layers(
      [](const DeviceSize& size) { return std::make_unique<LayersInTurn>(size); });
}

EmulatedExperts::~EmulatedExperts() {
  replace_device_layers(nullptr);
  kernels::replace_cuda_table(&device::emulated_table());
  emulation::resident_blocks = 12;
  emulation::warpgroups = false;
}

}  // namespace tessera::fused

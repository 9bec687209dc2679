#include "device/emulated_kernels.h"
// Before the emulation, which renames a word.
#include "fused/cuda/device_world.h"
// Include the world first: the emulation renames a word.
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stdexcept>

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

// The launches of ranks with a GPU each run at once, when the last rank has come. Under the mutex.
class Meeting {
 public:
  template <class Start>
  void launch(std::unique_lock<std::mutex>& lock, int ranks, const Start& start) {
    if (!gpus_) gpus_.emplace();
    start();
    if (++arrived_ == ranks) {
      arrived_ = 0;
      ++turn_;
      gpus_->run();
      gpus_.reset();
      all_here_.notify_all();
    } else if (!all_here_.wait_for(lock, std::chrono::seconds(60),
                                   [this, turn = turn_] { return turn_ != turn; })) {
      throw std::runtime_error("a launch waits for those of other GPUs");
    }
  }

 private:
  std::optional<emulation::Together> gpus_;
  std::condition_variable all_here_;
  int arrived_ = 0;
  int64_t turn_ = 0;
};
Meeting meeting;

class LayersInTurn final : public DeviceLayers {
 public:
  LayersInTurn(const DeviceSize& size, const DevicePeers& peers)
      : ranks_(peers.buffers.empty() ? 1 : size.ranks),
        layers_(size, {.processors = peers.buffers.empty() ? 0 : 3, .patience = 1000000}, peers) {}
  void run(std::span<const DeviceLayer> layers) override {
    std::unique_lock lock(emulating);
    if (ranks_ == 1) return layers_.run(layers);
    meeting.launch(lock, ranks_, [&] { layers_.start(layers); });
    layers_.finish();
  }

 private:
  int ranks_;
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
      {[](const DeviceSize& size, const DevicePeers& peers) {
         return std::make_unique<LayersInTurn>(size, peers);
       },
       [](const DeviceSize& size) { return cuda::DeviceOperator::layout_of(size, {}).bytes(); }});
}

EmulatedExperts::~EmulatedExperts() {
  replace_device_layers({});
  kernels::replace_cuda_table(&device::emulated_table());
  emulation::resident_blocks = 12;
  emulation::warpgroups = false;
}

}  // namespace tessera::fused

#include "runtime/device.h"

#include <charconv>
#include <mutex>

#include "base/fail.h"
#include "base/printable.h"
#include "cluster/processes.h"
#include "comm/collectives.h"
#include "comm/nccl/launch.h"
#include "kernels/bf16_path.h"
#include "kernels/gpu.h"
#include "tensor/device_pool.h"

namespace tessera {

DeviceOption parse_device(const std::string& text) {
  if (text == "cpu") return {};
  if (text == "cuda") return {DeviceKind::cuda};
  const std::string head = "cuda:";
  int index = -1;
  bool valid = text.starts_with(head);
  if (valid) {
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data() + head.size(), end, index);
    valid = error == std::errc() && rest == end && index >= 0;
  }
  require(valid, ErrorCode::usage, "`device` {}: expected 'cpu', 'cuda' or 'cuda:N'",
          base::printable(text));
  return {DeviceKind::cuda, index};
}

namespace runtime {

using tensor::Device;

DeviceChoice choose_device(const DeviceOption& option) {
  if (option.kind == DeviceKind::cpu) return {};
  return {Device::cuda, option.index.value_or(0), option.index.has_value()};
}

void start_device(const DeviceChoice& choice) {
  if (!is_gpu(choice.device)) {
    kernels::active_bf16_path();  // refuse an instruction set of the environment before any work
    return;
  }
  static std::mutex starting;
  static int started = -1;  // index of the process's only GPU
  const std::lock_guard lock(starting);
  if (started < 0 && tensor::has_device()) return;  // the caller installed a device
  require(started < 0 || started == choice.index, ErrorCode::usage,
          "`device` cuda:{}: this process computes on cuda:{} already; start another one",
          choice.index, started);
  if (started == choice.index) return;
  tensor::use_device(std::make_shared<tensor::DevicePool>(kernels::open_gpu(choice.index)));
  started = choice.index;
}

void check_gpus(int gpus, int ranks) {
  require(ranks <= gpus, ErrorCode::usage,
          "`device` cuda: {} ranks were started on this machine, which shows {} GPU{}; each takes "
          "one of its own: start {} on a machine, or use `device` cpu",
          ranks, gpus, gpus == 1 ? "" : "s", gpus);
}

void check_weights(const Plan& plan, const DeviceChoice& choice) {
  require(
      plan.shard == 1 || !is_gpu(choice.device), ErrorCode::plan,
      "the plan cannot run: shard= gathers weights in the memory of hosts; leave it out, or use "
      "`device` cpu");
}

void start_device(DeviceChoice& choice, const RunOptions& options) {
  if (!is_gpu(choice.device) || !options.processes || options.processes->ranks() == 1)
    return start_device(choice);
  const Processes& processes = *options.processes;
  require(!choice.named, ErrorCode::usage,
          "`device` cuda:{}: {} ranks that are processes cannot share a GPU; write `device` cuda, "
          "and rank i of a machine takes its GPU i",
          choice.index, processes.ranks());
  if (!tensor::has_device()) check_gpus(kernels::gpu_count(), processes.on_this_machine());
  Processes::State& state = processes.state();
  choice.index = state.index_here;
  start_device(choice);
  if (!state.gpus) state.gpus = comm::nccl::over(*state.world);
}

void share_bf16_path(comm::Communicator& world) {
  using kernels::Bf16Path;
  const bool dot = world.rank() == 0 && kernels::active_bf16_path() == Bf16Path::dot;
  kernels::use_bf16_path(comm::agreed(world, 0, dot, comm::kControl) ? Bf16Path::dot
                                                                     : Bf16Path::fma);
}

std::string device_name(const DeviceChoice& choice) {
  if (!is_gpu(choice.device)) return name_of(choice.device);
  return fmt::format("cuda:{} ({})", choice.index, tensor::device_pool()->runtime().name());
}

tensor::Tensor on_host(const tensor::Tensor& x) { return x.is_meta() ? x : x.to(Device::cpu); }

int64_t free_device_memory() {
  const auto pool = tensor::device_pool();
  const auto use = pool->use();
  return pool->runtime().memory().free + use.live + use.waiting;
}

}  // namespace runtime
}  // namespace tessera

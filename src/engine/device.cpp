#include "engine/device.h"

#include <charconv>
#include <mutex>

#include "base/fail.h"
#include "base/printable.h"
#include "kernels/gpu.h"
#include "tensor/device_pool.h"

namespace tessera::engine {

using tensor::Device;

DeviceChoice parse_device(const std::string& text) {
  if (text == "cpu") return {};
  DeviceChoice choice{Device::cuda, 0};
  if (text == "cuda") return choice;
  const std::string head = "cuda:";
  const char* const end = text.data() + text.size();
  bool known = text.starts_with(head) && text.size() > head.size();
  if (known) {
    const auto [rest, error] = std::from_chars(text.data() + head.size(), end, choice.index);
    known = error == std::errc() && rest == end && choice.index >= 0;
  }
  require(known, ErrorCode::usage, "--device {}: expected 'cpu', 'cuda' or 'cuda:N'",
          base::printable(text));
  return choice;
}

void start_device(const DeviceChoice& choice) {
  if (choice.device != Device::cuda) return;
  static std::mutex starting;
  static int started = -1;  // the one GPU of the process
  const std::lock_guard lock(starting);
  if (started < 0 && tensor::has_device()) return;  // the caller brought one
  require(started < 0 || started == choice.index, ErrorCode::usage,
          "--device cuda:{}: this process computes on cuda:{} already; start another one",
          choice.index, started);
  if (started == choice.index) return;
  tensor::use_device(std::make_shared<tensor::DevicePool>(kernels::open_gpu(choice.index)));
  started = choice.index;
}

std::string device_name(const DeviceChoice& choice) {
  if (choice.device != Device::cuda) return name_of(choice.device);
  return fmt::format("cuda:{} ({})", choice.index, tensor::device_pool()->runtime().name());
}

int64_t free_device_memory() {
  const auto pool = tensor::device_pool();
  const auto use = pool->use();
  return pool->runtime().memory().free + use.live + use.waiting;
}

}  // namespace tessera::engine

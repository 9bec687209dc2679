#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace tessera::comm {

/// Requirements of every transport: each case runs in its own world of `ranks`, and throws if the
/// transport fails. Messages are tensors on a device.
struct ConformanceCase {
  std::string name;
  int ranks = 1;
  std::function<void(Communicator& world)> body;
};
std::vector<ConformanceCase> conformance_cases(tensor::Device on = tensor::Device::cpu);

}  // namespace tessera::comm

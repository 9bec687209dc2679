#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace tessera::comm {

/// What every transport must do: each case is run on its own world of `ranks`, and throws when the
/// transport does not. Messages are tensors on a device.
struct ConformanceCase {
  std::string name;
  int ranks = 1;
  std::function<void(Communicator& world)> body;
};
std::vector<ConformanceCase> conformance_cases(tensor::Device on = tensor::Device::cpu);

}  // namespace tessera::comm

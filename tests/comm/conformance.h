#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace tessera::comm {

/// What every transport must do: each case is run on its own world of `ranks`, and throws when the
/// transport does not.
struct ConformanceCase {
  std::string name;
  int ranks = 1;
  std::function<void(Communicator& world)> body;
};
std::vector<ConformanceCase> conformance_cases();

}  // namespace tessera::comm

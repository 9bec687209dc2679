#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tensor/scope.h"

namespace tessera::tensor {

/// Counts a launch of a kernel on a GPU in the meter of the current scope, without work.
void count_launch(const char* kernel);
/// Launches by kernel among the entries of a meter; replays of recorded work count each time.
std::map<std::string, int64_t> launches_of(const std::map<std::string, Meter::Entry>& entries);

}  // namespace tessera::tensor
